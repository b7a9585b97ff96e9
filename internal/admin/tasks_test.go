package admin_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestListTasksByFilter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	queued := f.submit("acme", "ann", "words", `say "hi" 100%`, `{"ticket":{"n/o":7}}`)
	other := f.submit("corp", "carl", "other", "text of another")
	failed := f.submit("acme", "bob", "words", "break")
	l := f.ClaimTask(failed)
	f.Append(l, storetest.Status(a2a.StateFailed, "Disk FULL on node 3"))
	asks := f.submit("acme", "bob", "words", "ask")
	f.Append(f.ClaimTask(asks), storetest.Status(a2a.StateInputRequired, "full?"))
	retried := f.submit("acme", "ann", "words", "again")
	if err := f.Tasks.Retry(t.Context(), f.ClaimTask(retried), "upstream said 50%_off", time.Hour); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string][]a2a.ID{
		"":                                      {queued, other, failed, asks, retried},
		"tenant=acme":                           {queued, failed, asks, retried},
		"tenant=acme&owner=bob":                 {failed, asks},
		"agent=other":                           {other},
		"agent=other&agent=words":               {queued, other, failed, asks, retried},
		"agent=none":                            {},
		"context=ctx&state=failed":              {failed},
		"context=else":                          {},
		"state=input-required":                  {asks},
		"state=input_required":                  {asks},
		"state=TASK_STATE_INPUT_REQUIRED":       {asks},
		"state=failed&state=input-required":     {failed, asks},
		"id=" + queued.String():                 {queued},
		"id=" + queued.String()[:35]:            {queued},
		"outcome=failed":                        {failed},
		"outcome=retry":                         {retried},
		"since=2020-01-01T00:00:00Z":            {queued, other, failed, asks, retried},
		"until=2020-01-01T00:00:00Z":            {},
		"text=" + url.QueryEscape(`"HI" 10`):    {queued},
		"text=" + url.QueryEscape(`0%`):         {queued},
		"text=another":                          {other},
		"text=messageId":                        {}, // a name in the stored JSON is no text
		"text=" + url.QueryEscape(`.*`):         {},
		"error=" + url.QueryEscape("disk full"): {failed},
		"error=full":                            {failed}, // and not the question of asks
		"error=" + url.QueryEscape("50%_OFF"):   {retried},
		"error=" + url.QueryEscape("50__off"):   {},
		"metadataKey=ticket":                    {queued},
		"metadataKey=" + url.QueryEscape("n/o"): {queued},
		"metadataKey=text":                      {}, // a member of the message, not of its metadata
		"metadataKey=tick":                      {},
		"roots=true":                            {queued, other, failed, asks, retried},
		"parked=true":                           {},
		"notRetried=true&state=failed":          {failed},
	} {
		list := read[admin.TaskList](f, f.get("reader", "/tasks?"+query))
		got := []string{}
		for _, r := range list.Tasks {
			got = append(got, r.ID)
		}
		var ids []string
		for _, id := range slices.Backward(want) {
			ids = append(ids, id.String())
		}
		if !slices.Equal(got, ids) {
			t.Errorf("GET /tasks?%s: %d tasks %v, want %v", query, len(got), got, ids)
		}
	}
	list := read[admin.TaskList](f, f.get("reader", "/tasks?id="+retried.String()))
	if list.Tasks[0].LastError != "upstream said 50%_off" {
		t.Errorf("last error %q", list.Tasks[0].LastError)
	}
}

// TestPagesHaveEachTaskOnce: tasks that were created at the same time are told apart by their ids.
func TestPagesHaveEachTaskOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 7 {
		f.submit("acme", "ann", "words", strings.Repeat("x", i+1))
	}
	f.Exec("UPDATE a2a.tasks SET created_at = timestamptz '2026-03-04 05:06:07.123456Z'")
	all := read[admin.TaskList](f, f.get("reader", "/tasks"))
	if all.Next != "" {
		t.Errorf("the only page has the next page %q", all.Next)
	}
	var paged []admin.Task
	for path := "/tasks?limit=3"; ; {
		page := read[admin.TaskList](f, f.get("reader", path))
		paged = append(paged, page.Tasks...)
		if page.Next == "" {
			break
		}
		path = "/tasks?limit=3&cursor=" + page.Next
	}
	storetest.Same(t, "pages", all.Tasks, paged)
	if len(paged) != 7 {
		t.Errorf("%d tasks, want 7", len(paged))
	}
}

func TestSearchThatTakesTooLongSaysSo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *admin.Config) { c.SearchTimeout = 50 * time.Millisecond })
	release := f.Lock("LOCK TABLE a2a.task_parked IN ACCESS EXCLUSIVE MODE") // the search waits for it
	got := f.get("reader", "/tasks")
	release()
	if got.status != http.StatusUnprocessableEntity || got.reason() != "SEARCH_TOO_LONG" ||
		!strings.Contains(got.body, "narrow it") {
		t.Errorf("%d %s", got.status, got.body)
	}
	for got.reason() == "SEARCH_TOO_LONG" { // a busy machine needs more than one try
		got = f.get("reader", "/tasks")
	}
	if got.status != http.StatusOK {
		t.Errorf("afterwards: %d %s", got.status, got.body)
	}
}

// TestListsSayWhyTasksFailed: with the text of the agent, however odd it is, else with the error of an attempt.
func TestListsSayWhyTasksFailed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for text, want := range map[string]string{
		"Disk \"full\"\n": "Disk \"full\"\n", "a\\": "a\\", "café 😀 \u2028": "café 😀 \u2028",
		strings.Repeat("\\\"", 3000): strings.Repeat("\\\"", 400),
	} {
		id := f.submit("acme", "ann", "words", "x")
		failed := storetest.Status(a2a.StateFailed, text)
		failed.Status.Message.ID = "m"
		f.Append(f.ClaimTask(id), failed)
		list := read[admin.TaskList](f, f.get("reader", "/tasks?id="+id.String()))
		if got := list.Tasks[0].LastError; !strings.HasPrefix(got, want) || len(got) > 2000 {
			t.Errorf("%.60q is shown as %.60q", text, got)
		}
	}
	id := f.submit("acme", "ann", "words", "x")
	f.Append(f.ClaimTask(id), storetest.Status(a2a.StateCompleted, "all is well"))
	if list := read[admin.TaskList](f, f.get("reader", "/tasks?id="+id.String())); list.Tasks[0].LastError != "" {
		t.Errorf("a completed task has the error %q", list.Tasks[0].LastError)
	}
}

func TestShowTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.FullTask()
	d := read[admin.TaskDetail](f, f.get("acme", "/tasks/"+id.String()))
	if d.ID != id.String() || d.State != "completed" || len(d.Attempts) == 0 || len(d.Timeline) == 0 {
		t.Errorf("task %+v", d)
	}
	var task struct {
		ID        string            `json:"id"`
		Artifacts []json.RawMessage `json:"artifacts"`
	}
	if err := json.Unmarshal(d.Raw, &task); err != nil || task.ID != id.String() || len(task.Artifacts) == 0 {
		t.Errorf("task %s, %v", d.Raw, err)
	}
	d = read[admin.TaskDetail](f, f.get("acme", "/tasks/"+id.String()+"?artifacts=false"))
	if task.Artifacts = nil; json.Unmarshal(d.Raw, &task) != nil || len(task.Artifacts) > 0 {
		t.Errorf("without artifacts: %s", d.Raw)
	}
	tree := read[admin.Tree](f, f.get("acme", "/tasks/"+id.String()+"/tree"))
	if len(tree.Tasks) != 1 || tree.Tasks[0].ID != id.String() || tree.Tasks[0].Depth != 0 {
		t.Errorf("tree %+v", tree)
	}
}

func TestTaskThatIsTooLargeIsShownWithoutItsArtifacts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *admin.Config) { c.MaxTask = 20_000 })
	id := f.NewTask()
	f.Append(f.ClaimTask(id), storetest.Artifact("a", strings.Repeat("x", 30_000)))
	got := f.get("reader", "/tasks/"+id.String())
	if got.status != http.StatusUnprocessableEntity || !strings.Contains(got.body, "artifacts=false") {
		t.Errorf("%d %.200s", got.status, got.body)
	}
	if got := f.get("reader", "/tasks/"+id.String()+"?artifacts=false"); got.status != http.StatusOK {
		t.Errorf("without artifacts: %d %s", got.status, got.body)
	}
}

func TestUnknownAndInvalidInputIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.NewTask().String()
	for _, query := range []string{
		"color=red", "State=failed", "state=sleeping", "state=", "limit=0", "limit=1001", "limit=many", "parked=yes",
		"since=yesterday", "cursor=x", "cursor=AAAA", "id=xyz", "tenant=a&tenant=b", "outcome=lost", "text=%00",
		"text=%ff", "text=" + strings.Repeat("x", 2001), "a=%zz",
	} {
		got := f.get("reader", "/tasks?"+query)
		if got.status != http.StatusBadRequest || got.reason() != "INVALID_PARAMS" {
			t.Errorf("%.60s: %d %s", query, got.status, got.body)
		}
	}
	for path, bodies := range map[string][]string{
		"cancel": {``, `[]`, `null`, `{`, `{"Reason":"x"}`, `{"reason":1}`, `{"reason":null}`, `{"why":"x"}`,
			`{"reason":"a","reason":"b"}`, `{"reason":"` + strings.Repeat("x", 1001) + `"}`},
		"retry":  {`{"webhooks":"no"}`, `{"name":"x"}`},
		"signal": {`{}`, `{"name":""}`, `{"name":null}`, `{"name":"x","Value":1}`},
		"answer": {`{}`, `{"text":1}`, `{"text":"x","Data":1}`},
		"purge":  {`{}`, `{"reason":""}`},
	} {
		for _, body := range bodies {
			if got := f.post("both", "/tasks/"+id+"/"+path, body); got.status != http.StatusBadRequest {
				t.Errorf("%s %.40s: %d %s", path, body, got.status, got.body)
			}
		}
	}
	if got := f.get("reader", "/nothing"); got.status != http.StatusNotFound {
		t.Errorf("an unknown path: %d %s", got.status, got.body)
	}
	if actions := f.Actions(); len(actions) > 0 {
		t.Errorf("the audit log has %q, want nothing", actions)
	}
}

// TestBrowseEndsInTimeAndRefusesWrites: the timeout of a search ends all of its statements together, and a search
// writes nothing.
func TestBrowseEndsInTimeAndRefusesWrites(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	run := func(statement string, times int, timeout time.Duration) error {
		return f.DB.Browse(t.Context(), timeout, func(ctx context.Context, tx *db.Tx) (err error) {
			for range times {
				if _, err = tx.Exec(ctx, statement); err != nil {
					break
				}
			}
			return err
		})
	}
	if err := run("SELECT pg_sleep(600)", 1, 20*time.Millisecond); !db.Blocked(err) {
		t.Errorf("a slow statement: %v, want that it is given up", err)
	}
	if err := run("SELECT pg_sleep(0.001)", 3000, 300*time.Millisecond); !db.Blocked(err) {
		t.Errorf("many quick statements: %v, want that they are given up", err)
	}
	if err := run("DELETE FROM a2a.tasks", 1, time.Minute); !db.IsCode(err, "25006") {
		t.Errorf("a write: %v, want that it is refused", err)
	}
}

// TestTimelinesDrawMemory: what a timeline takes counts against the share of its reader, as the task itself does.
func TestTimelinesDrawMemory(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *admin.Config) { c.Budget = budget.New(budget.Config{Total: budget.Least}) })
	path := "/tasks/" + f.submit("acme", "ann", "words", "x").String() + "?artifacts=false"
	for events, want := range map[int]int{100: http.StatusOK, 6000: http.StatusServiceUnavailable} {
		f.Exec(`INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
			SELECT t.id, n, gen_random_uuid(), a2a.kind_status(), a2a.state_working(), a2a.source_server(), now(), '{}'
			FROM a2a.tasks t, generate_series(2, $1) n ON CONFLICT DO NOTHING`, events)
		if got := f.get("reader", path); got.status != want {
			t.Errorf("a task with %d events: %d %.200s, want %d", events, got.status, got.body, want)
		}
		f.Exec(`DELETE FROM a2a.task_events WHERE seq > 1`)
	}
}
