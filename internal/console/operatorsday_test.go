package console_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// person uses the console with nothing but what its pages offer, and counts clicks.
type person struct {
	*browser
	body   string // of the page that is open
	clicks int
}

// follow clicks a link of the page whose address has a text.
func (p *person) follow(part string) {
	p.t.Helper()
	for _, m := range regexp.MustCompile(`<a href="([^"]*)"`).FindAllStringSubmatch(p.body, -1) {
		if address := html.UnescapeString(m[1]); strings.Contains(address, part) {
			p.clicks++
			p.body = p.page(address)
			return
		}
	}
	p.t.Fatalf("no link to %s: %s", part, p.body)
}

var hidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`)

// submit fills in the first form for an action that has a text, and sends it. Unfolding it is a click, and so is each
// tick and the button. What is typed is none.
func (p *person) submit(action, part string, clicks int, typed url.Values) {
	p.t.Helper()
	for _, form := range strings.Split(p.body, "<form ")[1:] {
		form, _, _ = strings.Cut(form, "</form>")
		if !strings.Contains(form, `action="`+action) || !strings.Contains(form, part) {
			continue
		}
		values := url.Values{}
		for _, m := range hidden.FindAllStringSubmatch(form, -1) {
			values.Set(m[1], html.UnescapeString(m[2]))
		}
		for name, v := range typed {
			if !strings.Contains(form, `name="`+name+`"`) {
				p.t.Fatalf("the form for %s has no field %s: %s", action, name, form)
			}
			values[name] = v
		}
		full := regexp.MustCompile(`action="([^"]*)"`).FindStringSubmatch(form)[1]
		p.clicks += clicks
		status, body := p.send(http.MethodPost, full, values)
		if status == http.StatusSeeOther {
			body = p.page(p.last.Header.Get("Location"))
		} else if status != http.StatusOK {
			p.t.Fatalf("%s answered %d: %s", full, status, body)
		}
		p.body = body
		return
	}
	p.t.Fatalf("no form for %s with %q: %s", action, part, p.body)
}

// badDay makes 200 tasks: 28 fail for two reasons, 16 ask, 3 are held by a worker that hangs, and 5 have webhooks to a
// destination that is disabled.
func badDay(r *rig) {
	r.T.Helper()
	claimer := r.Tasks.NewClaimer()
	for i := range 200 {
		if i < 195 {
			r.NewTask()
		} else {
			r.NewTaskWithWebhook("h")
		}
		worker := "works"
		if i >= 44 && i < 47 {
			worker = "hangs"
		}
		leases, err := claimer.ClaimFor(r.T.Context(), tasks.ClaimRequest{
			Agent: storetest.Agent, Worker: worker, Slots: 1, TTL: time.Hour,
		})
		if err != nil || len(leases) != 1 {
			r.T.Fatalf("claim: %d leases, %v", len(leases), err)
		}
		switch l := &leases[0]; {
		case i < 18:
			r.Append(l, storetest.Status(a2a.StateFailed, fmt.Sprintf("gateway answered 502 for order %d", 4000+i)))
		case i < 28:
			r.Append(l, storetest.Status(a2a.StateFailed, fmt.Sprintf("no product has the number %d", i)))
		case i < 44:
			r.Append(l, storetest.Status(a2a.StateInputRequired, fmt.Sprintf("Refund order %d?", i)))
		case i >= 47:
			r.Append(l, storetest.Status(a2a.StateCompleted))
		}
	}
	due := r.ClaimWebhooks(10)
	for i := range due {
		r.Failed(&due[i], webhooks.Failure{Fate: "dead"})
	}
	r.Exec(`INSERT INTO a2a.push_destinations (tenant, origin, fails, disabled_at, last_error)
		SELECT DISTINCT tenant, origin, 900, now(), 'connect: connection refused' FROM a2a.push_configs
		ON CONFLICT (tenant, origin) DO UPDATE
		SET fails = 900, disabled_at = now(), last_error = 'connect: connection refused'`)
	r.Exec(`UPDATE a2a.tasks t SET last_at = last_at - interval '40 minutes'
		WHERE EXISTS (SELECT FROM a2a.task_leases l WHERE l.task_id = t.id AND l.worker = 'hangs')`)
}

// TestOperatorsDay finds and repairs a bad day in the console alone, in at most 30 clicks, as somebody does who knows
// no SQL and no command.
func TestOperatorsDay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	badDay(r)
	b := r.serve()
	b.mustSignIn(r.key(everything...))
	p := &person{browser: b}
	p.body = p.page("/console/")

	// The overview shows two reasons, the worker that hangs, and the destination that is down.
	for _, want := range []string{
		`>18</a></td>`, `>10</a></td>`, "gateway answered", "no product has the number", "hangs", "40m",
		"connection refused",
	} {
		if !strings.Contains(p.body, want) {
			t.Errorf("the overview does not show %q", want)
		}
	}
	// The gateway is back. The other reason is the fault of callers.
	p.follow("/console/tasks?failure=")
	p.follow("action=retry")
	p.submit("/console/tasks/bulk", "Retry 18 tasks", 1, url.Values{"reason": {"the gateway is back"}})
	r.runJobs()

	// Who waits for a person?
	p.follow("/console/inbox")
	for range 16 {
		p.submit("/console/tasks/", "Answer", 1, url.Values{"text": {"yes"}})
	}
	if !strings.Contains(p.body, "Nothing waits for a person") {
		t.Errorf("the inbox still has questions: %s", p.body)
	}

	// A worker hangs.
	p.follow("/console/workers")
	if row := tableRow(t, p.body, "hangs"); !strings.Contains(row, "silent since 40 min ago") {
		t.Errorf("the worker that hangs is shown as %q", row)
	}
	p.submit("/console/workers/drain", `value="hangs"`, 3, url.Values{"reason": {"it hangs"}, "expire": {"yes"}})
	r.Rescue(3)

	// The receiver of the webhooks is back.
	p.follow("/console/webhooks")
	p.submit("/console/destinations/replay", "", 2, url.Values{"reason": {"it is back"}, "hours": {"24"}})
	p.submit("/console/destinations/enable", "", 2, url.Values{"reason": {"it is back"}})
	if strings.Contains(p.body, "Destinations that are down") {
		t.Errorf("a destination is still down: %s", p.body)
	}
	if left := r.Column(`SELECT state FROM a2a.push_configs WHERE state <> 'active'`); len(left) > 0 {
		t.Errorf("webhooks are still %q", left)
	}
	if queued := r.Column(`SELECT task_id::text FROM a2a.task_ready`); len(queued) != 18+16+3 {
		t.Errorf("%d tasks are in the queue, want 37", len(queued))
	}
	t.Logf("%d clicks", p.clicks)
	if p.clicks > 30 {
		t.Errorf("it took %d clicks", p.clicks)
	}
}
