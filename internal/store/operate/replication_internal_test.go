package operate

import (
	"testing"
	"time"
)

func TestStandingLag(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]Standing{
		"it has replayed all that it has received": {Receives: true, Replayed: true, Newest: time.Hour},
		"its newest transaction is 3s old":         {Receives: true, Newest: 3_200 * time.Millisecond},
		"it has replayed no transaction":           {Receives: true, Newest: -time.Millisecond},
		"it receives nothing from its primary, and its newest transaction is 1h0m0s old": {
			Replayed: true, Newest: time.Hour,
		},
	} {
		if got := s.Lag(); got != want {
			t.Errorf("%+v: %s, want %s", s, got, want)
		}
	}
}

// The values are examples of the PostgreSQL manual, and what Patroni writes.
func TestSyncWanted(t *testing.T) {
	t.Parallel()
	for names, want := range map[string]int{
		"": 0, " ": 0, "s1": 1, "*": 1, "s1, s2": 1, "FIRST 3 (s1, s2, s3, s4)": 3, "ANY 2 (s1, s2, s3)": 2,
		"2 (s1, s2)": 2, "any 1(*)": 1, `"pg-1"`: 1, "2 (*)": 2, `"2 ("`: 1,
	} {
		if got := syncWanted(names); got != want {
			t.Errorf("%q: %d, want %d", names, got, want)
		}
	}
}
