package console_test

import (
	"context"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/console"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// tableRow returns the text of the row of a table that has a text.
func tableRow(t *testing.T, page, text string) string {
	t.Helper()
	for _, row := range strings.Split(page, "<tr")[1:] {
		row, _, _ = strings.Cut("<tr"+row, "</tr>")
		if plain := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(row, " "); strings.Contains(plain, text) {
			return strings.Join(strings.Fields(plain), " ")
		}
	}
	t.Fatalf("no row has %q: %s", text, page)
	return ""
}

func TestWorkersPageShowsWhoWorks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	lease := r.RunningTask()
	r.Exec(`UPDATE a2a.tasks SET last_at = last_at - interval '20 minutes' WHERE id = $1`, lease.TaskID.String())
	done := r.RunningTask()
	r.Append(done, storetest.Status(a2a.StateFailed, "no"))
	r.Exec(`UPDATE a2a.task_attempts SET worker = 'was here' WHERE task_id = $1`, done.TaskID.String())
	if _, err := r.Tasks.WorkersSeen(t.Context(), []string{"pulled"}); err != nil {
		t.Fatal(err)
	}
	beat := &tasks.Heartbeat{
		Name: "idle", Instance: "1", Version: "1.2.3", Host: "node-1", Slots: 4, Busy: 1, BusyShare: 0.26,
		Commands: 3, BusyCommands: 3, CommandsWait: 90 * time.Second,
		Remote: []tasks.RemoteWorker{{Tenant: "acme", Name: "puller", Version: "<b>sdk", Agents: []string{"asked"}}},
	}
	if err := r.Tasks.Heartbeat(t.Context(), beat); err != nil {
		t.Fatal(err)
	}
	page := b.page("/console/workers")
	if row := tableRow(t, page, "puller"); !strings.Contains(row, " &lt;b&gt;sdk asked 0 – now –") {
		t.Errorf("the idle remote worker is shown as %q", row)
	}
	if row := tableRow(t, page, "idle"); !strings.Contains(row, " 1.2.3 0 – now –") {
		t.Errorf("the idle server is shown as %q", row)
	}
	const full = "All 3 slots for commands of idle are in use, and tasks have waited for one for 1m30s."
	if !strings.Contains(page, full) {
		t.Errorf("the page does not say: %s", full)
	}
	r.Exec(`UPDATE a2a.workers SET seen_at = seen_at - interval '1 minute' WHERE name = 'puller'`)
	if row := tableRow(t, b.page("/console/workers"), "puller"); !strings.Contains(row, "puller gone") {
		t.Errorf("the remote worker that is not in touch is shown as %q", row)
	}
	if row := tableRow(t, page, "r1"); !strings.Contains(row, "one is silent since 20 min ago") {
		t.Errorf("the worker that is silent is shown as %q", row)
	}
	if row := tableRow(t, page, "was here"); !strings.Contains(row, storetest.Agent+" 0 – – – 1 1 now") {
		t.Errorf("the worker whose attempt failed is shown as %q", row)
	}
	row := tableRow(t, page, lease.TaskID.String())
	if !strings.Contains(row, "r1 1") || !regexp.MustCompile(` 20m\d+s`).MatchString(row) {
		t.Errorf("the attempt is shown as %q", row)
	}
	if row := tableRow(t, page, "pulled"); !strings.Contains(row, "now 0") {
		t.Errorf("the agent of remote workers is shown as %q", row)
	}
}

func TestDoctorPageShowsTheWorstFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var checks atomic.Int32
	b := r.serve(open, func(cfg *console.Config) {
		cfg.Doctor = func(context.Context) []console.Finding {
			checks.Add(1)
			return []console.Finding{
				{Check: "clock", Level: "ok", Text: "the clocks agree"},
				{Check: "schema", Level: "fault", Text: "<b>the schema is old</b>", Fix: "Run a2ad migrate up."},
			}
		}
	})
	page := b.page("/console/doctor")
	fault, fine := strings.Index(page, "the schema is old"), strings.Index(page, "the clocks agree")
	if fault < 0 || fine < fault || strings.Contains(page, "<b>the schema") ||
		!strings.Contains(page, "1 fault, 0 warnings") {
		t.Errorf("the page is %s", page)
	}
	b.page("/console/doctor")
	if n := checks.Load(); n != 1 {
		t.Errorf("two views made the checks %d times, want once", n)
	}
}
