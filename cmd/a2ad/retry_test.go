package main

import (
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// Filters select tasks that have failed and that were not retried before.
func TestTaskRetrySelects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(oldTask, "bob", nil)
	w.append(w.claim(), statusUpdate(a2a.StateFailed))
	w.submit(taskID, "alice", nil)
	w.append(w.claim(), statusUpdate(a2a.StateRejected))
	w.submit(thirdTask, "alice", nil)
	w.append(w.claim(), statusUpdate(a2a.StateFailed))
	retry := func(args ...string) (olds string) {
		t.Helper()
		for _, r := range rows[retriedTask](t, w.run(exitOK, append([]string{"task", "retry", "-o", "json", "--yes"},
			args...)...)) {
			olds += r.Of + " "
		}
		return strings.TrimSpace(olds)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--tenant", "other"}, ""},
		{[]string{"--agent", "echo"}, ""},
		{[]string{"--agent", "words", "--owner", "alice"}, thirdTask},
		{[]string{"--all"}, oldTask}, // the others are rejected, and retried before
		{[]string{"--all"}, ""},
		{[]string{"--state", "failed,rejected"}, taskID},
	} {
		if got := retry(tc.args...); got != tc.want {
			t.Errorf("%v retried %s, want %s", tc.args, got, tc.want)
		}
	}
	w.run(exitUsage, "task", "retry", "--yes")
}

// The secrets of webhooks are copied only with the keys that encrypt them.
func TestTaskRetryNeedsTheKeysOfSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := seal.Generate("k1")
	ring, err := seal.Parse(key)
	if err != nil {
		t.Fatal(err)
	}
	w.submit(taskID, "alice", &webhooks.NewWebhook{
		ConfigID: "h", URL: "http://192.0.2.1/", Origin: "http://192.0.2.1", Version: a2a.PushV10,
		Seal: func(row a2a.ID) (token, credentials []byte, err error) {
			return push.SealSecrets(ring, row, &a2a.PushConfig{Token: "secret"})
		},
	})
	w.append(w.claim(), statusUpdate(a2a.StateFailed))
	i := w.run(exitFailure, "task", "retry", taskID)
	if !strings.Contains(i.stderr, "set A2AD_KEYS") || strings.Contains(i.stderr, "secret\"") {
		t.Errorf("%s", i.stderr)
	}
	w.run(exitOK, "task", "retry", "--no-webhooks", taskID)
	w.env = append(w.env, "A2AD_KEYS="+key)
	words := strings.Fields(w.run(exitOK, "task", "retry", taskID).stdout)
	if len(words) != 3 {
		t.Fatalf("printed %q", words)
	}
	list, err := w.store.Webhooks.List(t.Context(), webhooks.Filter{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	copies := 0
	for _, row := range list {
		if row.Task.String() == words[2] {
			copies++
		}
	}
	if copies != 1 || len(list) != 2 {
		t.Errorf("%d webhooks, %d of the new task, want 2 and 1", len(list), copies)
	}
	w.env[len(w.env)-1] = "A2AD_KEYS=" + seal.Generate("k2") + "," + key
	if i := w.run(exitOK, "keys", "rewrap"); i.stdout != "2 webhooks and keys encrypted with k2\n" {
		t.Errorf("a secret cannot be decrypted: %s%s", i.stdout, i.stderr)
	}
}
