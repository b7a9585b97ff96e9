package tasks

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// look is what a process sees at one moment.
type look struct {
	at    time.Duration
	locks int64
	free  string // the servers whose locks are free, one letter each; o is the own one
	gone  string // the servers that are gone
}

func TestServersAreGoneAfterAGrace(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	const s = settleGraces * grace
	tests := map[string][]look{
		"one is killed": {
			{0, 1, "", ""}, {s, 1, "a", ""}, {s + grace - 1, 1, "a", ""}, {s + grace, 1, "a", "a"},
			{s + 2*grace, 1, "a", "a"},
		},
		"one connects again in time": {
			{0, 1, "", ""}, {s, 1, "a", ""}, {s + grace - 1, 1, "", ""}, {s + grace, 1, "a", ""},
			{s + 2*grace, 1, "a", "a"},
		},
		"one connects again too late": {
			{0, 1, "", ""}, {s, 1, "a", ""}, {s + grace, 1, "a", "a"}, {s + 2*grace, 1, "", ""},
			{s + 3*grace, 1, "a", ""},
		},
		"each has a grace of its own": {
			{0, 1, "", ""}, {s, 1, "a", ""}, {s + grace, 1, "ab", "a"}, {s + 2*grace, 1, "ab", "ab"},
		},
		"a process that has just begun does not judge": {
			{0, 1, "a", ""}, {s - 1, 1, "a", ""}, {s, 1, "a", "a"},
		},
		"after this process has connected again, all may have to": {
			{0, 1, "", ""}, {s, 1, "a", ""}, {s + grace, 2, "a", ""}, {2*s + grace - 1, 2, "a", ""},
			{2*s + grace, 2, "a", "a"},
		},
		"the statement runs on another database than Watch": {
			{0, 1, "", ""}, {s, 1, "a", ""}, {s + grace, 1, "ao", ""}, {s + 2*grace, 1, "a", ""},
			{2*s + 2*grace, 1, "a", "a"},
		},
	}
	for name, looks := range tests {
		begin := time.Now()
		w := Sessions{Grace: grace}
		for i, l := range looks {
			if i > 0 {
				last := looks[i-1]
				for last.at += grace / 2; last.at < l.at; last.at += grace / 2 {
					last.by(&w, begin)
				}
			}
			if got := l.by(&w, begin); got != l.gone {
				t.Errorf("%s: after %s gone are %q, want %q", name, l.at, got, l.gone)
			}
		}
	}
}

// by returns the servers that are gone after the look.
func (l look) by(w *Sessions, begin time.Time) (gone string) {
	var rows []dbsqlc.ServersGoneRow
	for _, instance := range []string{"a", "b", "o"} {
		rows = append(rows, dbsqlc.ServersGoneRow{Instance: instance, Gone: strings.Contains(l.free, instance)})
	}
	list := w.judge(begin.Add(l.at), "o", l.locks, rows)
	slices.Sort(list)
	return strings.Join(list, "")
}

// A server that has no session at two moments may have had one between them.
func TestServersAreSeenAllTheTime(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	w, begin := Sessions{Grace: grace}, time.Now()
	at := time.Duration(0)
	see := func(pause time.Duration, want string) {
		t.Helper()
		at += pause
		if got := (look{at, 1, "a", want}).by(&w, begin); got != want {
			t.Errorf("after a pause of %s gone are %q, want %q", pause, got, want)
		}
	}
	for range settleGraces {
		(look{at, 1, "", ""}).by(&w, begin)
		at += grace
	}
	see(0, "")
	see(grace+1, "")
	see(grace-1, "")
	see(1, "a")
}

func TestServersAreLookedAtAgainSoon(t *testing.T) {
	t.Parallel()
	w, begin := Sessions{Grace: time.Hour}, time.Now()
	for _, l := range []struct {
		look
		suspects bool
	}{
		{look{0, 1, "", ""}, false}, {look{time.Minute, 1, "a", ""}, true}, {look{2 * time.Minute, 1, "", ""}, false},
		{look{-time.Hour, 1, "a", ""}, false}, // when the grace is over, the rescue need not hurry
	} {
		l.by(&w, begin)
		if got := w.Suspects(); got != l.suspects {
			t.Errorf("after %s with %q free, Suspects = %t", l.at, l.free, got)
		}
	}
}
