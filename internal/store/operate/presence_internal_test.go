package operate

import (
	"testing"
	"time"
)

func TestSaturationNeedsFullServersAndTasksThatWaitForThem(t *testing.T) {
	t.Parallel()
	type fleet struct {
		known  []Presence
		queues []QueueDepth
	}
	for name, tc := range map[string]struct {
		change func(f *fleet)
		want   bool
	}{
		"all full":          {func(*fleet) {}, true},
		"one has room":      {func(f *fleet) { f.known[1].BusyShare = 0.5 }, false},
		"the other is gone": {func(f *fleet) { f.known[1].BusyShare, f.known[1].Quiet = 0, time.Minute }, true},
		"the other is drained": {func(f *fleet) {
			f.known[1].BusyShare, f.known[1].Name = 0, "drained"
		}, true},
		"the other runs no agents": {func(f *fleet) { f.known[1].BusyShare, f.known[1].Slots = 0, 0 }, true},
		"a remote worker is idle": {func(f *fleet) {
			f.known = append(f.known, Presence{Tenant: "acme", Name: "w", Slots: 1})
		}, true},
		"no server":          {func(f *fleet) { f.known = nil }, false},
		"no task":            {func(f *fleet) { f.queues = nil }, false},
		"a task just came":   {func(f *fleet) { f.queues[0].Oldest = time.Second }, false},
		"a task for later":   {func(f *fleet) { f.queues[0].Due = 0 }, false},
		"a task of a paused": {func(f *fleet) { f.queues[0].Agent = "paused" }, false},
	} {
		f := &fleet{
			known: []Presence{
				{Name: "r1", Slots: 4, BusyShare: 0.95}, {Name: "r2", Slots: 8, BusyShare: 1},
			},
			queues: []QueueDepth{
				{Agent: "words", Waiting: 9, Due: 7, Oldest: time.Minute},
				{Agent: "paused", Waiting: 100, Due: 100, Oldest: time.Hour},
			},
		}
		tc.change(f)
		got := saturation(f.known, f.queues, map[string]bool{"paused": true}, map[string]bool{"drained": true})
		if (got != nil) != tc.want {
			t.Errorf("%s: saturation is %+v, want one: %t", name, got, tc.want)
		}
		if name == "all full" && *got != (Saturation{Slots: 12, Due: 7, Oldest: time.Minute}) {
			t.Errorf("saturation is %+v", *got)
		}
	}
}

func TestNewestPresenceOfANameIsAServer(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	known := []Presence{
		{Tenant: "acme", Name: "x", SeenAt: now.Add(time.Minute)},
		{Name: "x", Instance: "old", SeenAt: now}, {Name: "x", Instance: "new", SeenAt: now.Add(time.Second)},
		{Name: "y", SeenAt: now.Add(time.Hour)},
	}
	if p := Newest(known, "x"); p == nil || p.Instance != "new" {
		t.Errorf("got %+v, want the server that started last", p)
	}
	if p := Newest(known, "z"); p != nil {
		t.Errorf("got %+v of a name that nothing has", p)
	}
}
