package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/seal"
)

// reason returns why a task has its status, as an event tells its client.
func reason(ev client.Event) string {
	var told struct {
		Metadata struct {
			Reason string `json:"a2ad/reason"`
		}
	}
	if json.Unmarshal(ev.Raw, &told) != nil {
		return ""
	}
	return told.Metadata.Reason
}

// A stream and a webhook follow a parked task over the death of its replica and the resume, and see each event once.
func TestFollowersOfAParkedTaskSeeItsCompletion(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	repaired := filepath.Join(t.TempDir(), "repaired") // a FIFO, at which the agent waits
	c.agent("fragile", fmt.Sprintf("name: fragile\ndescription: Works once it is repaired.\n"+
		"executor: {exec: {command: [/bin/sh, -c, 'test -e %[1]s || exit 75; cat %[1]s -'], "+
		"input: text, output: text}}\n"+
		"limits: {max_attempts: 1, on_exhausted: park}\n", repaired))
	keys := seal.Generate("k1")
	sink := newHookSink(t, nil)
	var at atomic.Pointer[replica]
	at.Store(c.start("a", hooking(keys)...))
	got := c.rpc(at.Load(), "fragile", "message/send", `{
		"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"done"}]},
		"configuration":{"blocking":false,"pushNotificationConfig":{"url":"`+sink.URL+`/x"}}}`)
	var sent struct{ ID string }
	if err := json.Unmarshal(got.result, &sent); err != nil || sent.ID == "" {
		t.Fatalf("send: %s", got.body)
	}
	task := sent.ID
	reader := c.roamer("fragile", func(int) *replica { return at.Load() })
	first := client.StreamOptions{LastEventID: one[string](c,
		`SELECT '1-' || left(event_uid::text, 8) FROM audit.event WHERE task_id::text = $1 AND seq = 1`, task)}
	delivered := func(what string) {
		until(t, "the webhook has delivered that the task "+what, func() bool {
			return one[bool](c, `SELECT cursor_seq = head_seq AND lease_until IS NULL FROM a2a.push_configs`)
		})
	}
	var told []string // reasons in the stream
	events := follow(t, reader.Resubscribe(bounded(t), task, first), func(ev client.Event) bool {
		why := reason(ev)
		if why == "" {
			return false
		}
		told = append(told, why)
		if len(told) == 2 {
			delivered("works again")
			if err := os.WriteFile(repaired, nil, 0); err != nil { // the agent continues
				t.Error(err)
			}
			return false
		}
		delivered("is parked")
		at.Load().kill()
		if err := syscall.Mkfifo(repaired, 0o600); err != nil {
			t.Error(err)
		}
		at.Store(c.start("b", hooking(keys)...))
		if out, notes, code := c.operate(nil, "task", "resume", task, "--reason", "it is repaired"); code != 0 {
			t.Errorf("resume: exit code %d, %s%s", code, out, notes)
		}
		return false
	})
	endsWith(t, events, a2a.StateCompleted)
	c.awaitDelivered()
	var statuses []string
	for i, ev := range events {
		if want := int64(i) + 2; ev.Seq != want {
			t.Errorf("the stream has event %d, want %d", ev.Seq, want)
		}
		if ev.State == a2a.StateCompleted || reason(ev) != "" {
			statuses = append(statuses, fmt.Sprint(ev.Seq))
		}
	}
	const parked = "parked: attempt 1 of 1: /bin/sh: exit status 75"
	if diff := cmp.Diff([]string{parked, "it is repaired"}, told); diff != "" {
		t.Errorf("reasons in the stream (-want +got):\n%s", diff)
	}
	var hooks []string
	for _, h := range sink.all() {
		if _, seq, _ := cutLast(h.id, "_"); slices.Contains(statuses, seq) {
			hooks = append(hooks, seq)
		}
	}
	// The webhook may get the claim in place of the resume, which it follows at once.
	resumed := func(seq string) bool { return seq == statuses[1] }
	want := slices.DeleteFunc(slices.Clone(statuses), resumed)
	if diff := cmp.Diff(want, slices.DeleteFunc(hooks, resumed)); diff != "" {
		t.Errorf("events at the webhook (-want +got):\n%s", diff)
	}
	if n := sink.judge(); n != 0 {
		t.Errorf("%d notifications came twice", n)
	}
	if diff := cmp.Diff([]string{"a parked", "b completed"}, c.attempts(task)); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}
