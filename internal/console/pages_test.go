package console_test

import (
	"bufio"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/console"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

func mustID(t *testing.T, text string) a2a.ID {
	t.Helper()
	id, err := a2a.ParseID(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestFilesAreSavedAndNeverShown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lease := r.RunningTask()
	r.Append(lease, &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "page", Parts: []a2a.Part{
		{Kind: a2a.PartFile, Text: "PHNjcmlwdD4=", Filename: "../../\u202ee\"vil.html", MediaType: "text/html"},
		{Kind: a2a.PartData, Data: a2a.Raw(`{"a":1}`)},
	}}})
	b := r.serve(open)
	path := "/console/tasks/" + lease.TaskID.String() + "/files/0/"
	for i, want := range []string{"<script>", `{"a":1}`} {
		body := b.page(path + string(rune('0'+i)))
		h := b.last.Header
		if body != want || h.Get("Content-Type") != "application/octet-stream" ||
			!strings.HasPrefix(h.Get("Content-Disposition"),
				"attachment") || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Content-Security-Policy") != "default-src 'none'; sandbox" {
			t.Errorf("file %d is %q with %v", i, body, h)
		}
		if at := h.Get("Content-Disposition"); strings.ContainsAny(at, "/<") || strings.Contains(at, "..") {
			t.Errorf("file %d is saved as %s", i, at)
		}
	}
	for _, none := range []string{"2", "-1", "x", "999999999999999999999"} {
		if status, _ := b.get(path + none); status != http.StatusNotFound {
			t.Errorf("part %s answered %d", none, status)
		}
	}
}

func TestPagesLoadNothingElse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	body := b.page("/console/")
	policy := b.last.Header.Get("Content-Security-Policy")
	if strings.Contains(policy, "unsafe") || !strings.HasPrefix(policy, "default-src 'none'") ||
		!strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("policy %q", policy)
	}
	total := len(body)
	for _, m := range regexp.MustCompile(`(?:src|href)="(/console/assets/[^"]+)"`).FindAllStringSubmatch(body, -1) {
		total += len(b.page(m[1]))
		if got := b.last.Header.Get("Cache-Control"); got != "public, max-age=31536000, immutable" {
			t.Errorf("%s is kept %q", m[1], got)
		}
	}
	if total > 150<<10 || total < 10<<10 {
		t.Errorf("the page and its assets take %d bytes", total)
	}
	if strings.Contains(body, "//") && regexp.MustCompile(`(src|href)="(https?:)?//`).MatchString(body) {
		t.Error("the page names another host")
	}
}

func TestActionsAreRecordedWithWhoAndWhy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k := r.key(everything...)
	b := r.serve()
	b.mustSignIn(k)
	act := func(id a2a.ID, action string, form url.Values) {
		t.Helper()
		path := "/console/tasks/" + id.String()
		if status, body := b.post(path, path+action, form); status != http.StatusSeeOther {
			t.Fatalf("%s answered %d: %s", action, status, body)
		}
	}
	canceled := r.NewTask()
	act(canceled, "/cancel", url.Values{"reason": {"it was sent twice"}})
	act(canceled, "/retry", url.Values{"reason": {"it was not"}})
	asking := r.RunningTask()
	r.Append(asking, storetest.Status(a2a.StateInputRequired, "Go on?"))
	asked := regexp.MustCompile(`name="asked" value="(\d+)"`).FindStringSubmatch(b.page("/console/inbox"))
	act(asking.TaskID, "/answer", url.Values{"text": {"yes"}, "asked": {asked[1]}})
	parked := r.RunningTask()
	if err := r.Tasks.Park(t.Context(), parked, "attempts are used up", 0); err != nil {
		t.Fatal(err)
	}
	act(parked.TaskID, "/resume", url.Values{"reason": {"the agent is repaired"}})
	got := strings.Join(r.Column(`SELECT concat_ws(' ', actor, action, detail->>'reason') FROM a2a.audit_log
		WHERE task_id IS NOT NULL ORDER BY id`), "\n")
	who := "key " + k.ID() + " "
	want := strings.Join([]string{
		who + "task.cancel it was sent twice", who + "task.retry it was not", who + "task.answer",
		who + "task.resume the agent is repaired",
	}, "\n")
	if got != want {
		t.Errorf("the audit log has\n%s\nwant\n%s", got, want)
	}
	history := r.Snapshot(asking.TaskID).History
	if last := history[len(history)-1]; last.Role != a2a.RoleUser || last.Parts[0].Text != "yes" {
		t.Errorf("the answer is %+v", last)
	}
	r.Invariants()
}

func TestQuestionIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	lease := r.RunningTask()
	r.Append(lease, storetest.Status(a2a.StateInputRequired, "First?"))
	path := "/console/tasks/" + lease.TaskID.String()
	asked := regexp.MustCompile(`name="asked" value="(\d+)"`).FindStringSubmatch(b.page(path))
	form := func() url.Values { return url.Values{"text": {"yes"}, "asked": {asked[1]}} }
	if status, _ := b.post(path, path+"/answer", form()); status != http.StatusSeeOther {
		t.Fatalf("the answer got %d", status)
	}
	if status, _ := b.post(path, path+"/answer", form()); status != http.StatusConflict {
		t.Errorf("a second answer got %d, want 409", status)
	}
	again := r.ClaimTask(lease.TaskID)
	r.Append(again, storetest.Status(a2a.StateInputRequired, "Second?"))
	if status, _ := b.post(path, path+"/answer", form()); status != http.StatusConflict {
		t.Errorf("an answer to the first question got %d for the second one, want 409", status)
	}
	if n := len(r.Snapshot(lease.TaskID).History); n != 3 {
		t.Errorf("the task has %d messages, want 3: the first, a question and its answer", n)
	}
}

func TestActionsNeedAReason(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b, task := r.serve(open), r.NewTask()
	path := "/console/tasks/" + task.String()
	if status, _ := b.post(path, path+"/cancel",
		url.Values{"reason": {"  "}}); status != http.StatusUnprocessableEntity {
		t.Errorf("a cancel without a reason answered %d, want 422", status)
	}
	if s := r.Snapshot(task).Status.State; s.Terminal() {
		t.Errorf("the task is %s", s)
	}
}

func TestLivePagesAreToldOfChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	lease := r.RunningTask()
	for _, path := range []string{"/console/live", "/console/tasks/" + lease.TaskID.String() + "/live"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		await := func(want string) {
			t.Helper()
			for lines.Scan() {
				if lines.Text() == want {
					return
				}
			}
			t.Fatalf("%s ended before %q: %v", path, want, lines.Err())
		}
		await(": live") // from now on it follows
		r.Append(lease, storetest.Status(a2a.StateWorking, "progress of "+path))
		await("data: changed")
	}
}

func TestTasksAreFilteredByTheURL(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	waiting, failed := r.NewTask(), r.ClaimTask(r.Submit(storetest.Submission("fails")).Task)
	r.Append(failed, storetest.Status(a2a.StateFailed, "upstream 7 is gone"))
	for query, want := range map[string][2]bool{ // whether it shows the waiting and the failed task
		"": {true, true}, "?state=failed": {false, true}, "?state=working&state=submitted&state=failed": {true, true},
		"?agent=" + storetest.Agent: {true, true}, "?agent=other": {false, false}, "?owner=ann": {true, true},
		"?owner=bob": {false, false}, "?since=1h": {true, true}, "?q=" + waiting.String()[:8]: {true,
			true}, "?q=zz": {false, false}, "?error=UPSTREAM": {false, true}, "?text=fails": {false, true},
		"?parked=1":                         {false, false},
		"?before=" + failed.TaskID.String(): {true, false},
	} {
		body := b.page("/console/tasks" + query)
		got := [2]bool{strings.Contains(body, "t-"+waiting.String()), strings.Contains(body,
			"t-"+failed.TaskID.String())}
		if got != want {
			t.Errorf("%q shows %v, want %v", query, got, want)
		}
	}
	group := regexp.MustCompile(`\?failure=[0-9a-f]+`).FindString(b.page("/console/"))
	if body := b.page("/console/tasks" + group); !strings.Contains(body, "upstream &lt;n&gt; is gone") ||
		!strings.Contains(body, "t-"+failed.TaskID.String()) || strings.Contains(body, "t-"+waiting.String()) {
		t.Errorf("the group %q shows %s", group, body)
	}
}

func TestTaskPageShowsWhatHappened(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	lease := r.RunningTask()
	r.Append(lease, storetest.Artifact("report", "All is well."))
	if err := r.Tasks.Retry(t.Context(), lease, "connection refused", 0); err != nil {
		t.Fatal(err)
	}
	r.Append(r.ClaimTask(lease.TaskID), storetest.Status(a2a.StateCompleted, "finished"))
	body := b.page("/console/tasks/" + lease.TaskID.String())
	for _, want := range []string{"connection refused", "attempt 2", "All is well.", "finished",
		"Where the time went", "s-completed"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	if strings.Contains(body, "data-live") {
		t.Error("the page of a task that has ended is live")
	}
	if status, _ := b.get("/console/tasks/01890000-0000-7000-8000-000000000000"); status != http.StatusNotFound {
		t.Errorf("an unknown task answered %d", status)
	}
}

func TestTaskPageLinksItsTrace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := storetest.Submission("x")
	in.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traced, plain := r.Submit(in).Task, r.NewTask()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	b := r.serve(open, func(cfg *console.Config) { cfg.TraceURL = "https://j.example/trace/{trace_id}?a=1&b=2" })
	page := b.page("/console/tasks/" + traced.String())
	link := `<a href="https://j.example/trace/` + trace + `?a=1&amp;b=2" rel="noreferrer">` + trace + `</a>`
	if !strings.Contains(page, link) {
		t.Errorf("the page has no link %s", link)
	}
	if page := b.page("/console/tasks/" + plain.String()); strings.Contains(page, "Trace</dt>") {
		t.Error("a task without a trace has a link")
	}
	page = r.serve(open).page("/console/tasks/" + traced.String())
	if !strings.Contains(page, `<dd class="mono">`+trace+`</dd>`) {
		t.Error("without the setting the page does not name the trace")
	}
}
