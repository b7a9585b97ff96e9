package admin_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestActionsAreInTheAuditLogWithWhoAndWhy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	failed := f.submit("acme", "ann", "words", "break")
	f.Append(f.ClaimTask(failed), storetest.Status(a2a.StateFailed, "no"))
	parked := f.submit("acme", "ann", "words", "park")
	if err := f.Tasks.Park(t.Context(), f.ClaimTask(parked), "out of luck", time.Hour); err != nil {
		t.Fatal(err)
	}
	task := f.submit("acme", "ann", "words", "x")
	retry := "/tasks/" + failed.String() + "/retry"
	made := read[admin.RetriedTask](f, f.post("both", retry, `{"reason":"the disk is new"}`))
	if made.Of != failed.String() || made.State != "submitted" || made.ID == made.Of {
		t.Errorf("retried %+v", made)
	}
	resume := "/tasks/" + parked.String() + "/resume"
	resumed := read[admin.ResumedTask](f, f.post("both", resume, `{"reason":"fixed"}`))
	if resumed.ID != parked.String() || resumed.Parked != "out of luck" {
		t.Errorf("resumed %+v", resumed)
	}
	for range 2 { // the second one is a repetition
		f.post("both", "/tasks/"+task.String()+"/signal", `{"name":"go","value":{"n":1},"key":"k","reason":"approved"}`)
	}
	asks := f.submit("acme", "bob", "words", "ask")
	f.Append(f.ClaimTask(asks), storetest.Status(a2a.StateInputRequired, "Which color?"))
	for range 2 {
		answered := read[admin.Task](f, f.post("both", "/tasks/"+asks.String()+"/answer",
			`{"text":"red","key":"k","reason":"by phone"}`))
		if answered.ID != asks.String() || answered.State != "submitted" {
			t.Errorf("answered %+v", answered)
		}
	}
	history := f.Snapshot(asks).History
	last := history[len(history)-1]
	if last.Role != a2a.RoleUser || len(last.Parts) != 1 || last.Parts[0].Text != "red" {
		t.Errorf("the last message is %+v", last)
	}
	canceled := read[admin.Task](f, f.post("both", "/tasks/"+task.String()+"/cancel", `{"reason":"a mistake"}`))
	if canceled.ID != task.String() || canceled.State != "canceled" {
		t.Errorf("canceled %+v", canceled)
	}
	const why = `{"reason":"asked to forget"}`
	purged := read[admin.PurgedTask](f, f.post("both", "/tasks/"+task.String()+"/purge", why))
	if purged.ID != task.String() {
		t.Errorf("purged %+v", purged)
	}
	if got := f.get("both", "/tasks/"+task.String()); got.status != http.StatusNotFound {
		t.Errorf("the purged task: %d %s", got.status, got.body)
	}
	want := []string{
		`key k1 task.retry acme/ann {"new":"` + made.ID + `","reason":"the disk is new"}`,
		`key k1 task.resume acme/ann {"parked":"out of luck","reason":"fixed"}`,
		`key k1 task.signal acme/ann {"reason":"approved","signal":"go"}`,
		`key k1 task.answer acme/bob {"reason":"by phone"}`,
		`key k1 task.cancel acme/ann {"reason":"a mistake"}`,
		`key k1 task.purge acme/ann {"reason":"asked to forget"}`,
	}
	if got := f.Actions(); !slices.Equal(got, want) {
		t.Errorf("the audit log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	f.Invariants()
}

func TestActionsThatAStateDoesNotPermit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ended, unknown := f.FullTask().String(), db.NewTaskID().String()
	queued := f.submit("acme", "ann", "words", "x").String()
	for _, tt := range []struct {
		task, action, body string
		status             int
		reason             string
	}{
		{ended, "cancel", `{}`, 409, "TASK_NOT_CANCELABLE"},
		{ended, "retry", `{}`, 409, "NOTHING_TO_RETRY"},
		{queued, "retry", `{}`, 409, "NOTHING_TO_RETRY"},
		{queued, "resume", `{}`, 409, "NOT_PARKED"},
		{ended, "signal", `{"name":"go"}`, 409, "UNSUPPORTED_OPERATION"},
		{ended, "answer", `{"text":"x"}`, 409, "UNSUPPORTED_OPERATION"},
		{queued, "answer", `{"text":"x"}`, 409, "NOT_WAITING"},
		{unknown, "answer", `{"text":"x"}`, 404, "TASK_NOT_FOUND"},
		{unknown, "cancel", `{}`, 404, "TASK_NOT_FOUND"},
		{unknown, "retry", `{}`, 404, "TASK_NOT_FOUND"},
		{unknown, "resume", `{}`, 404, "TASK_NOT_FOUND"},
		{unknown, "signal", `{"name":"go"}`, 404, "TASK_NOT_FOUND"},
		{unknown, "purge", `{"reason":"x"}`, 404, "TASK_NOT_FOUND"},
		{"no-id", "purge", `{"reason":"x"}`, 404, "TASK_NOT_FOUND"},
	} {
		got := f.post("both", "/tasks/"+tt.task+"/"+tt.action, tt.body)
		if got.status != tt.status || got.reason() != tt.reason {
			t.Errorf("%s %s: %d %s, want %d %s", tt.action, tt.task, got.status, got.body, tt.status, tt.reason)
		}
	}
}

// TestAnswerIsForTheQuestionThatWasRead: an answer to a question that was answered meanwhile is no answer to the next
// one. A repeated request confirms what it stored.
func TestAnswerIsForTheQuestionThatWasRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.submit("acme", "ann", "words", "ask")
	f.Append(f.ClaimTask(id), storetest.Status(a2a.StateInputRequired, "Keep them?"))
	f.SetClockBack(time.Hour) // the next question is a later one all the same
	path := "/tasks/" + id.String()
	asked := func() string {
		return read[admin.TaskDetail](f, f.get("both", path)).UpdatedAt.Format(time.RFC3339Nano)
	}
	first := asked()
	colleague := `{"text":"no","key":"k","asked":"` + first + `"}`
	read[admin.Task](f, f.post("both", path+"/answer", colleague))
	late := `{"text":"yes","asked":"` + first + `"}`
	if got := f.post("both", path+"/answer", late); got.status != 409 || got.reason() != "NOT_WAITING" {
		t.Errorf("the answer to a question that was answered: %d %s", got.status, got.body)
	}
	f.Append(f.ClaimTask(id), storetest.Status(a2a.StateInputRequired, "Delete all?"))
	if got := f.post("both", path+"/answer", late); got.status != 409 || got.reason() != "OTHER_QUESTION" {
		t.Errorf("the answer to the question before: %d %s", got.status, got.body)
	}
	if again := read[admin.Task](f, f.post("both", path+"/answer", colleague)); again.State != "input-required" {
		t.Errorf("the repeated answer: %+v", again)
	}
	second := read[admin.Task](f, f.post("both", path+"/answer", `{"text":"never","asked":"`+asked()+`"}`))
	if second.State != "submitted" {
		t.Errorf("the answer to the second question: %+v", second)
	}
	var said []string
	for _, m := range f.Snapshot(id).History {
		if m.Role == a2a.RoleUser {
			said = append(said, m.Parts[0].Text)
		}
	}
	if want := []string{"ask", "no", "never"}; !slices.Equal(said, want) {
		t.Errorf("the messages are %q, want %q", said, want)
	}
	f.Invariants()
}

// TestAnswersFitTheQuestion: an answer may be JSON, and must fit the schema of the question.
func TestAnswersFitTheQuestion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.asking(`{"schema":{"type":"object","required":["color"]}}`)
	for _, body := range []string{`{"text":"red"}`, `{"data":{"size":1}}`, `{}`, `{"text":""}`} {
		if got := f.post("both", "/tasks/"+id.String()+"/answer", body); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	if actions := f.Actions(); len(actions) > 0 {
		t.Errorf("the audit log has %q, want nothing", actions)
	}
	got := read[admin.Task](f, f.post("both", "/tasks/"+id.String()+"/answer", `{"data":{"color":"red"}}`))
	if got.State != "submitted" {
		t.Errorf("answered %+v", got)
	}
	again := f.post("both", "/tasks/"+id.String()+"/answer", `{"data":{"color":"blue"}}`)
	if again.status != http.StatusConflict || again.reason() != "NOT_WAITING" {
		t.Errorf("answered again: %d %s", again.status, again.body)
	}
}

// TestLocalClient: a request within the process has the same answers and errors.
func TestLocalClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *admin.Config) {
		c.SignIn = func(*http.Request) (p auth.Principal, err error) { return callers["both"], nil }
	})
	id := f.NewTask()
	c := admin.Local(f.api)
	var list admin.TaskList
	query := admin.TaskQuery{
		TaskFilter: admin.TaskFilter{State: []string{"submitted"}, Tenant: "acme", Since: time.Unix(1, 0)}, Limit: 5,
	}
	err := c.Get(t.Context(), "/tasks", query, &list)
	if err != nil || len(list.Tasks) != 1 || list.Tasks[0].ID != id.String() {
		t.Errorf("list %+v, %v", list, err)
	}
	var task admin.Task
	if err := c.Post(t.Context(), "/tasks/"+id.String()+"/cancel", admin.Why{Reason: "x"}, &task); err != nil ||
		task.State != "canceled" {
		t.Errorf("cancel %+v, %v", task, err)
	}
	err = c.Post(t.Context(), "/tasks/"+id.String()+"/cancel", admin.Why{}, &task)
	if err == nil || err.Error() != "the task is already canceled" {
		t.Errorf("cancel again: %v", err)
	}
}

// asking makes a task with a question that expects a certain answer.
func (f *fixture) asking(expects string) a2a.ID {
	f.T.Helper()
	id := f.submit("acme", "ann", "words", "ask")
	l := f.ClaimTask(id)
	question := storetest.Status(a2a.StateInputRequired, "Which color?")
	event, _, err := attempt.Prepare(&a2a.Wait{
		Message: true, For: time.Hour, Expects: a2a.Raw(expects), Status: &question.Status,
	})
	if err != nil {
		f.T.Fatal(err)
	}
	w := event.(*a2a.Wait)
	step, err := attempt.Bounds{}.Journal(0, nil).Record(w, 0)
	if err != nil {
		f.T.Fatal(err)
	}
	if _, err := f.Tasks.Append(f.T.Context(), l, tasks.Batch{
		Events: []a2a.Event{&a2a.StatusUpdate{Status: *w.Status}}, Steps: []a2a.StepRecord{*step}, Wait: w,
	}); err != nil {
		f.T.Fatal(err)
	}
	return id
}
