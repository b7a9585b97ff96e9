package console_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/jobs"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

var filterField = regexp.MustCompile(`name="filter" value="([^"]*)"`)

// filterOf returns the filter in the form of a page that asks.
func (b *browser) filterOf(page string) string {
	b.t.Helper()
	m := filterField.FindStringSubmatch(b.page(page))
	if m == nil {
		b.t.Fatalf("%s offers no action: %s", page, b.page(page))
	}
	return html.UnescapeString(m[1])
}

// confirm opens the page that asks, sends its form, lets a server run the job, and returns the page of the job.
func (b *browser) confirm(r *rig, query, action, reason string) string {
	b.t.Helper()
	page := "/console/tasks/bulk?action=" + action + "&" + query
	status, body := b.post(page, "/console/tasks/bulk",
		url.Values{"action": {action}, "filter": {b.filterOf(page)}, "reason": {reason}})
	if status != http.StatusSeeOther {
		b.t.Fatalf("%s answered %d: %s", page, status, body)
	}
	job := b.last.Header.Get("Location")
	r.runJobs()
	return b.page(job)
}

func TestBulkActsOnWhatTheFiltersMatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k := r.key(everything...)
	b := r.serve()
	b.mustSignIn(k)
	var failed []string
	for range 3 {
		lease := r.RunningTask()
		r.Append(lease, storetest.Status(a2a.StateFailed, "upstream is gone"))
		failed = append(failed, lease.TaskID.String())
	}
	waiting := r.NewTask()
	page := b.page("/console/tasks/bulk?action=retry&agent=" + storetest.Agent)
	if !strings.Contains(page, "Retry 3 tasks?") || strings.Contains(page, waiting.String()) {
		t.Errorf("the page asks %s", page)
	}
	body := b.confirm(r, "state=failed", "retry", "upstream is back")
	if !strings.Contains(body, "3 tasks were retried") {
		t.Fatalf("the page of the job is %s", body)
	}
	got := r.Column(`SELECT concat_ws(' ', task_id, actor, detail->>'reason') FROM a2a.audit_log
		WHERE action = 'task.retry' ORDER BY task_id`)
	slices.Sort(failed)
	for i := range failed {
		failed[i] += " key " + k.ID() + " upstream is back"
	}
	if !slices.Equal(got, failed) {
		t.Errorf("the audit log has %q, want %q", got, failed)
	}
	// Those tasks have new ones now.
	if page := b.page("/console/tasks/bulk?action=retry&state=failed"); !strings.Contains(page, "can be retried") {
		t.Errorf("tasks are offered for a second retry: %s", page)
	}
	if body := b.confirm(r, "", "cancel", "a test"); !strings.Contains(body, "4 tasks were canceled") {
		t.Errorf("the page of the job is %s", body)
	}
	if page := b.page("/console/jobs"); strings.Count(page, `href="/console/jobs/`) != 2 {
		t.Errorf("the list of jobs is %s", page)
	}
	r.Invariants()
}

func TestBulkResumesParkedTasks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	parked := r.RunningTask()
	if err := r.Tasks.Park(t.Context(), parked, "attempts are used up", 0); err != nil {
		t.Fatal(err)
	}
	r.NewTask()
	if body := b.confirm(r, "", "resume", "repaired"); !strings.Contains(body, "1 task was resumed") {
		t.Fatalf("the page of the job is %s", body)
	}
	if n := r.Column(`SELECT count(*)::text FROM a2a.task_parked p JOIN a2a.tasks t
		ON t.id = p.task_id AND t.lease_epoch = p.epoch AND t.ready_at IS NULL`)[0]; n != "0" {
		t.Errorf("%s tasks are parked", n)
	}
}

func TestBulkOfAFailureGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	for i := range 4 {
		text := "disk " + strconv.Itoa(i) + " is full"
		if i == 3 {
			text = "no such model"
		}
		r.Append(r.RunningTask(), storetest.Status(a2a.StateFailed, text))
	}
	group := regexp.MustCompile(`failure=[0-9a-f]+`).FindString(b.page("/console/")) // the largest comes first
	if page := b.page("/console/tasks/bulk?action=retry&" + group); !strings.Contains(page, "Retry 3 tasks?") {
		t.Errorf("the page asks %s", page)
	}
}

func TestBulkLeavesTasksThatHaveChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	other := r.NewTask()
	const page = "/console/tasks/bulk?action=cancel"
	filter := b.filterOf(page)
	later := r.NewTask() // the viewer has not seen it
	if status, body := b.post(page, "/console/tasks/bulk",
		url.Values{"action": {"cancel"}, "filter": {filter}, "reason": {"x"}}); status != http.StatusSeeOther {
		t.Fatalf("the form answered %d: %s", status, body)
	}
	job := b.last.Header.Get("Location")
	j, found, err := r.Jobs.Claim(t.Context(), "r1", false)
	if err != nil || !found {
		t.Fatalf("claim: %t, %v", found, err)
	}
	if err := r.Jobs.Collect(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	live := regexp.MustCompile(`data-live="([^"]+)"`).FindStringSubmatch(b.page(job))
	if live == nil || !strings.HasSuffix(live[1], "left=1") {
		t.Errorf("the page of a running job is not live: %q", live)
	}
	if _, err := r.Tasks.Cancel(t.Context(), storetest.Ann, "", other); err != nil {
		t.Fatal(err)
	}
	if err := r.Jobs.Act(t.Context(), j, nil); err != nil {
		t.Fatal(err)
	}
	body := b.page(job)
	if !strings.Contains(body, "1 task skipped: it is canceled") || !strings.Contains(body, other.String()) {
		t.Errorf("the page of the job is %s", body)
	}
	if got := r.Snapshot(later).Status.State; got != a2a.StateSubmitted {
		t.Errorf("a task that was created after the count is %s", got)
	}
}

func TestBulkJobIsStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	task := r.NewTask()
	const page = "/console/tasks/bulk?action=cancel"
	b.post(page, "/console/tasks/bulk", url.Values{"action": {"cancel"}, "filter": {b.filterOf(page)}, "reason": {"x"}})
	job := b.last.Header.Get("Location")
	if status, _ := b.post(job, job+"/stop", url.Values{}); status != http.StatusUnprocessableEntity {
		t.Errorf("a stop without a reason answered %d", status)
	}
	if status, _ := b.post(job, job+"/stop", url.Values{"reason": {"a mistake"}}); status != http.StatusSeeOther {
		t.Errorf("the stop answered %d", status)
	}
	r.runJobs()
	if body := b.page(job); !strings.Contains(body, "stopped") || strings.Contains(body, "data-live") {
		t.Errorf("the page of the job is %s", body)
	}
	if got := r.Snapshot(task).Status.State; got != a2a.StateSubmitted {
		t.Errorf("the task is %s", got)
	}
}

// A page of a job learns what has changed since it was made, and later changes.
func TestPageOfAJobIsLive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	r.NewTask()
	job, err := r.Jobs.Start(t.Context(), jobs.NewJob{Action: jobs.Cancel})
	if err != nil {
		t.Fatal(err)
	}
	next := func(path string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := noRedirects.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		events := sse.NewReader(res.Body, sse.ReaderOptions{MaxLine: 1000, MaxEvent: 1000})
		if path == liveOf(job.ID, 0) {
			r.runJobs() // the stream has begun
		}
		if _, err := events.Next(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	next(liveOf(job.ID, 7)) // the page shows another number
	next(liveOf(job.ID, 0))
}

func liveOf(job a2a.ID, left int) string {
	return "/console/jobs/" + job.String() + "/live?left=" + strconv.Itoa(left)
}

func TestBulkNeedsThePermissionToAct(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	task := r.NewTask()
	form := func() url.Values {
		return url.Values{"action": {"cancel"}, "filter": {"{}"}, "reason": {"because"}}
	}
	reader := r.serve()
	reader.mustSignIn(r.key(auth.ScopeOperatorRead))
	if status, _ := reader.post("/console/tasks", "/console/tasks/bulk", form()); status != http.StatusForbidden {
		t.Errorf("a reader got %d, want 403", status)
	}
	if status, _ := reader.get("/console/tasks/bulk?action=cancel"); status != http.StatusForbidden {
		t.Errorf("a reader may look at the question: %d", status)
	}
	b := r.serve(open)
	for name, change := range map[string]url.Values{
		"no reason": {"reason": {" "}}, "no id": {"filter": {`{"ids":["x"]}`}}, "no action": {"action": {"purge"}},
		"no filter": {"filter": {""}}, "no state": {"filter": {`{"state":["asleep"]}`}},
		"a filter of a newer server": {"filter": {`{"agent":["words"],"color":"red"}`}},
		"a NUL":                      {"filter": {`{"owner":"\u0000"}`}},
	} {
		f := form()
		for k, v := range change {
			f[k] = v
		}
		status, _ := b.post("/console/tasks/"+task.String(), "/console/tasks/bulk", f)
		if status < 400 || status >= 500 {
			t.Errorf("%s answered %d", name, status)
		}
	}
	if n := r.Column(`SELECT count(*)::text FROM a2a.jobs`)[0]; n != "0" {
		t.Errorf("%s jobs were started", n)
	}
	for _, query := range []string{"color=red", "state=asleep", "since=1y", "agent=words&state=failed&state=asleep"} {
		status, body := b.get("/console/tasks/bulk?action=cancel&" + query)
		if status != http.StatusUnprocessableEntity || !strings.Contains(body, "does not know the filter") {
			t.Errorf("%s, of a link of a newer server, answered %d: %s", query, status, body)
		}
	}
}

// Support staff of a tenant start jobs on its tasks alone, and see no other jobs.
func TestBulkOfATenant(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	own := r.NewTask()
	in := storetest.Submission("of another tenant")
	in.Caller = db.Caller{Tenant: "globex", Owner: "bob"}
	foreign := r.Submit(in).Task
	b := r.serve()
	b.mustSignIn(r.key(auth.ScopeTenantRead, auth.ScopeOperatorWrite))
	if status, body := b.post("/console/tasks", "/console/tasks/bulk", url.Values{
		"action": {"cancel"}, "filter": {`{"tenant":"globex"}`}, "reason": {"because"},
	}); status != http.StatusSeeOther {
		t.Fatalf("the form answered %d: %s", status, body)
	}
	job := b.last.Header.Get("Location")
	r.runJobs()
	if body := b.page(job); !strings.Contains(body, "1 task was canceled") {
		t.Errorf("the page of its job is %s", body)
	}
	if got := r.Snapshot(foreign).Status.State; got != a2a.StateSubmitted {
		t.Errorf("a task of another tenant is %s", got)
	}
	if got := r.Snapshot(own).Status.State; got != a2a.StateCanceled {
		t.Errorf("its own task is %s", got)
	}
	others, err := r.Jobs.Start(t.Context(), jobs.NewJob{Action: jobs.Cancel})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/console/jobs/" + others.ID.String(), liveOf(others.ID, 0)} {
		if status, body := b.get(path); status != http.StatusNotFound || strings.Contains(body, "because") {
			t.Errorf("%s answered %d", path, status)
		}
	}
	if status, _ := b.get("/console/jobs"); status != http.StatusForbidden {
		t.Errorf("the list of jobs answered %d", status)
	}
}
