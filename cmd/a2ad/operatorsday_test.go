package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

const deadOrigin = "https://hooks.example:443"

// badDay makes 200 tasks: 28 fail for two reasons, 16 ask, 3 are held by a worker that hangs, 5 have webhooks to a
// destination that is disabled, and the others complete.
func badDay(w *world) {
	w.Helper()
	claimer := w.store.Tasks.NewClaimer()
	for i := range 200 {
		var hook *webhooks.NewWebhook
		if i >= 195 {
			hook = &webhooks.NewWebhook{
				ConfigID: "default", URL: "https://hooks.example/a2a", Origin: deadOrigin, Version: a2a.PushV10,
				Seal: func(a2a.ID) (token, credentials []byte, err error) { return nil, nil, nil },
			}
		}
		w.submit(db.NewTaskID().String(), "alice", hook)
		worker := "works"
		if i >= 44 && i < 47 {
			worker = "hangs"
		}
		leases, err := claimer.ClaimFor(w.Context(), tasks.ClaimRequest{
			Agent: "words", Worker: worker, Slots: 1, TTL: time.Hour,
		})
		if err != nil || len(leases) != 1 {
			w.Fatalf("claim: %d leases, %v", len(leases), err)
		}
		switch l := &leases[0]; {
		case i < 18:
			w.append(l, said(a2a.StateFailed, fmt.Sprintf("payment gateway answered 502 for order %d", 4000+i)))
		case i < 28:
			w.append(l, said(a2a.StateFailed, fmt.Sprintf("no product has the number \"A-%d\"", i)))
		case i < 44:
			w.append(l, said(a2a.StateInputRequired, fmt.Sprintf("Refund order %d?", i)))
		case i >= 47:
			w.append(l, statusUpdate(a2a.StateCompleted))
		}
	}
	url := strings.TrimPrefix(w.env[0], "A2AD_DATABASE_URL=")
	databaseSetting(w.T, url, `INSERT INTO a2a.push_destinations (tenant, origin, fails, disabled_at, last_error)
		VALUES ('acme', '`+deadOrigin+`', 900, now(), 'connect: connection refused')`)
	databaseSetting(w.T, url, `UPDATE a2a.push_configs SET state = 'dead'`)
	databaseSetting(w.T, url, `UPDATE a2a.tasks t SET last_at = last_at - interval '4 days 12 hours'
		WHERE EXISTS (SELECT FROM a2a.task_leases l WHERE l.task_id = t.id AND l.worker = 'hangs')`)
}

func said(s a2a.State, text string) *a2a.StatusUpdate {
	u := statusUpdate(s)
	u.Status.Message = &a2a.Message{
		ID: db.NewUID().String(), Role: a2a.RoleAgent, Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}},
	}
	return u
}

// TestOperatorsDay finds and repairs a bad day with the commands alone, as somebody does who knows no SQL.
func TestOperatorsDay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	badDay(w)
	commands := 0
	a2ad := func(args ...string) *invocation {
		t.Helper()
		commands++
		return w.run(exitOK, args...)
	}

	// What is wrong?
	stats := a2ad("stats").stdout
	for _, want := range []string{"hangs", deadOrigin, "connection refused", "4d ago"} {
		if !strings.Contains(stats, want) {
			t.Errorf("stats does not show %q:\n%s", want, stats)
		}
	}

	// Why did 28 fail? For two reasons.
	reasons := map[string]int{}
	number := regexp.MustCompile(`[0-9]+`)
	for _, row := range rows[admin.Task](t, a2ad("task", "ls", "--state", "failed", "--limit", "1000", "-o", "json")) {
		reasons[number.ReplaceAllString(row.LastError, "N")]++
	}
	if len(reasons) != 2 || reasons["payment gateway answered N for order N"] != 18 ||
		reasons[`no product has the number "A-N"`] != 10 {
		t.Errorf("the reasons are %v", reasons)
	}
	// The gateway is back. The others are faults of their callers, and stay.
	retried := a2ad("task", "retry", "--error", "payment gateway", "--yes", "--reason", "it is back", "-o", "json")
	if n := len(rows[admin.RetriedTask](t, retried)); n != 18 {
		t.Errorf("%d tasks were retried, want 18", n)
	}

	// Who waits for a person?
	asks := rows[admin.Task](t, a2ad("task", "ls", "--state", "input_required", "-o", "json"))
	if len(asks) != 16 {
		t.Errorf("%d tasks ask, want 16", len(asks))
	}
	for _, task := range asks {
		a2ad("task", "answer", task.ID, "yes", "--reason", "approved by phone",
			"--asked", task.UpdatedAt.Format(time.RFC3339Nano))
	}

	// The receiver of the webhooks is back.
	if i := a2ad("push", "destinations"); !strings.Contains(i.stdout, "connection refused") {
		t.Errorf("the destination shows no error:\n%s", i.stdout)
	}
	a2ad("push", "enable", "--tenant", "acme", deadOrigin, "--reason", "it is back")
	a2ad("push", "replay", "--tenant", "acme", "--origin", deadOrigin, "--since", "24h", "--reason", "it is back")

	// A worker hangs.
	var silent []string
	for _, x := range rows[admin.Worker](t, a2ad("worker", "ls", "-o", "json")) {
		if x.SilentSince != nil && time.Since(*x.SilentSince) > 30*time.Minute {
			silent = append(silent, x.Name)
		}
	}
	if len(silent) != 1 || silent[0] != "hangs" {
		t.Fatalf("silent are %q", silent)
	}
	if i := a2ad("worker", "drain", "hangs", "--expire", "--reason", "it hangs"); i.stdout !=
		"hangs drained, 3 leases ended\n" {
		t.Errorf("%q", i.stdout)
	}
	if n, err := w.store.Tasks.Rescue(t.Context(), nil, tasks.Policy{MaxAttempts: 5}, 100); err != nil || n != 3 {
		t.Errorf("the servers rescue %d tasks, %v", n, err)
	}

	// Nothing is left but the 10 faults of callers, and what the workers will do now.
	left := rows[admin.Task](t, a2ad("task", "ls", "--state", "submitted,working", "--limit", "1000", "-o", "json"))
	if len(left) != 18+16+3 {
		t.Errorf("%d tasks are in the queue, want 37", len(left))
	}
	for _, r := range rows[admin.Webhook](t, a2ad("push", "ls", "-o", "json")) {
		if r.State != "active" || r.DisabledAt != nil {
			t.Errorf("a webhook is still %s", r.State)
		}
	}
	if n := len(rows[admin.Action](t, a2ad("actions", "--limit", "1000", "-o", "json"))); n < 18+16+1+5+1 {
		t.Errorf("the audit log has %d actions", n)
	}
	if commands > 30 {
		t.Errorf("it took %d commands", commands)
	}
}
