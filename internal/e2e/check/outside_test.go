package check_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/e2e/check"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// Records that contradict the database must be reported.
func TestCompareOutsideFindsPlantedContradictions(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	ids := fill(t, db.URL)
	pool := db.Pool(t)
	const unknown = "01a204ba-0000-7000-8000-000000000000"
	if _, err := pool.Exec(t.Context(), `INSERT INTO a2a.messages (task_id, seq, at_seq, message_id, role, body,
		digest, idem_key, dedupe_mid)
		SELECT id, 9, 1, 'm2', 1, '{}', NULL, 'k2', false FROM a2a.tasks WHERE id::text = $1`, ids[2]); err != nil {
		t.Fatal(err)
	}
	// Two steps, with the usage of two requests.
	const usage = `INSERT INTO a2a.task_usage VALUES ($1, 'm', 1, 1, 0, 0, 2)`
	if _, err := pool.Exec(t.Context(), usage, ids[1]); err != nil {
		t.Fatal(err)
	}
	for seq, key := range []string{"chunk#0", "chunk#1"} {
		if _, err := pool.Exec(t.Context(), `INSERT INTO a2a.task_steps (task_id, seq, key, kind, name, result,
			attempts, started_at, ended_at, epoch, worker, recorded_at)
			VALUES ($1, $2, $3, 1, 'chunk', '{}', 1, now(), now(), 1, 'w', now())`, ids[1], seq+1, key); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name    string
		outside check.Outside
		want    string // the invariant; empty: no violation
	}{
		{"no contradiction", check.Outside{
			Acknowledged: []check.Acknowledged{{Task: ids[0], Key: "k0", MessageID: "m0"}},
			Executions:   []check.Execution{{Task: ids[0], Token: 1}}, Delivered: ids,
			Requests: map[string]int64{ids[0]: 0, ids[1]: 2},
		}, ""},
		{"an answer without a task", check.Outside{Acknowledged: []check.Acknowledged{{Task: unknown}}}, check.Phantom},
		{"an execution without a task", check.Outside{Executions: []check.Execution{{Task: unknown, Token: 1}}},
			check.Phantom},
		{"an execution without its claim", check.Outside{Executions: []check.Execution{{Task: ids[0], Token: 7}}},
			check.Phantom},
		{"a webhook without a task", check.Outside{Delivered: []string{unknown}}, check.Phantom},
		{"a missing message",
			check.Outside{Acknowledged: []check.Acknowledged{{Task: ids[0], MessageID: "m9"}}}, check.Lost},
		{"a missing key", check.Outside{Acknowledged: []check.Acknowledged{{Task: ids[0], Key: "k9"}}},
			check.Lost},
		{"a key of another task", check.Outside{Acknowledged: []check.Acknowledged{{Task: ids[0], Key: "k1"}}},
			check.Lost},
		{"a message twice", check.Outside{Acknowledged: []check.Acknowledged{{Task: ids[2], Key: "k2"}}}, check.Lost},
		{"a cancel that did not happen",
			check.Outside{Acknowledged: []check.Acknowledged{{Task: ids[0], Canceled: true}}}, check.Lost},
		{"usage that was cut off before its step", check.Outside{Requests: map[string]int64{ids[1]: 3}}, ""},
		{"usage that is counted twice", check.Outside{Requests: map[string]int64{ids[1]: 1}}, check.Usage},
	}
	for _, tt := range tests {
		found, err := check.CompareOutside(t.Context(), pool, tt.outside)
		if err != nil {
			t.Fatal(err)
		}
		if tt.want == "" && len(found) > 0 || tt.want != "" && (len(found) != 1 || found[0].Name != tt.want) {
			t.Errorf("%s: found %v, want %q", tt.name, found, tt.want)
		}
	}
	if _, err := pool.Exec(t.Context(), `UPDATE a2a.task_usage SET requests = 1`); err != nil {
		t.Fatal(err)
	}
	found, err := check.CompareOutside(t.Context(), pool, check.Outside{Requests: map[string]int64{ids[1]: 2}})
	if err != nil || len(found) != 1 || found[0].Name != check.Usage {
		t.Errorf("usage of a step is missing: found %v, %v, want %q", found, err, check.Usage)
	}
}
