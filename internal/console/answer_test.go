package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/console"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// TestAnswerThatComesLate: the client answers after the console has found the question open, and before it stores the
// answer of the form. Then that answer is not stored, neither as another message nor as the answer to a next question.
func TestAnswerThatComesLate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	meanwhile := func() {}
	b := r.serve(func(cfg *console.Config) {
		served := cfg.Agents
		cfg.Agents = func() []*a2a.Agent { // the console looks for the agent between the two
			meanwhile()
			return served()
		}
	})
	b.mustSignIn(r.key(everything...))
	for says, asksAgain := range map[string]bool{"no longer waits": false, "another question": true} {
		id := r.asking("ann")
		// The next question is a later one.
		r.Exec(`UPDATE a2a.tasks SET status_at = status_at - interval '1 second' WHERE id = $1`, id.String())
		asked := questionLink(b.page("/console/inbox"), id).Query().Get("asked")
		meanwhile = func() {
			meanwhile = func() {}
			in := storetest.Submission("no")
			in.Caller, in.Task = db.Caller{Tenant: "acme", Owner: "ann"}, id
			r.Submit(in)
			if asksAgain {
				r.Append(r.ClaimTask(id), storetest.Status(a2a.StateInputRequired, "Delete all?"))
			}
		}
		path := "/console/tasks/" + id.String()
		status, body := b.post(path, path+"/answer", url.Values{"text": {"yes"}, "asked": {asked}})
		if status != http.StatusConflict || !strings.Contains(body, says) {
			t.Errorf("the answer got %d, want one that says %q: %s", status, says, body)
		}
		history := r.Snapshot(id).History
		for _, m := range history {
			if m.Role == a2a.RoleUser && m.Parts[0].Text == "yes" {
				t.Errorf("the answer was stored: %+v", history)
			}
		}
	}
	r.Invariants()
}

// TestLargeQuestionHasAPageOfItsOwn: the inbox shows its beginning, and a link to all of it with the form.
func TestLargeQuestionHasAPageOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := storetest.Submission("hello")
	in.Caller = db.Caller{Tenant: "acme", Owner: "ann"}
	id := r.Submit(in).Task
	asks := storetest.Status(a2a.StateInputRequired, "May I?"+strings.Repeat(" please", 100_000))
	asks.Status.Message.ID = "m"
	r.Append(r.ClaimTask(id), asks)
	b := r.serve()
	b.mustSignIn(r.key(everything...))
	const form = `class="answer`
	inbox := b.page("/console/inbox")
	if !strings.Contains(inbox, "May I? please") || !strings.Contains(inbox, "too large for a list") ||
		strings.Contains(inbox, form) || len(inbox) > 20_000 {
		t.Errorf("the inbox has %d bytes: %.3000s", len(inbox), inbox)
	}
	for _, page := range []string{questionLink(inbox, id).RequestURI(), "/console/tasks/" + id.String()} {
		if all := b.page(page); strings.Contains(all, "too large for a list") || !strings.Contains(all, form) {
			t.Errorf("%s shows %.3000s", page, all)
		}
	}
}
