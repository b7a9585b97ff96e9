package importer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/importer"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// memory is a target that stores tasks by their ids, and the sizes of the batches.
type memory struct {
	tasks   map[a2a.ID]tasks.Import
	batches []int
}

func (m *memory) Import(_ context.Context, _ string, list []tasks.Import) ([]tasks.ImportOutcome, error) {
	out, _ := m.Imported(context.Background(), list)
	for _, it := range list {
		m.tasks[it.Task.ID] = it
	}
	m.batches = append(m.batches, len(list))
	return out, nil
}

func (m *memory) Imported(_ context.Context, list []tasks.Import) (out []tasks.ImportOutcome, _ error) {
	for _, it := range list {
		outcome := tasks.ImportStored
		if _, ok := m.tasks[it.Task.ID]; ok {
			outcome = tasks.ImportKnown
		}
		out = append(out, outcome)
	}
	return out, nil
}

// broken is a source that ends with an error after some records.
type broken struct {
	importer.Source
	after int
}

var errGone = errors.New("gone")

func (b broken) Records(ctx context.Context) iter.Seq2[importer.Record, error] {
	return func(yield func(importer.Record, error) bool) {
		n := 0
		for r, err := range b.Source.Records(ctx) {
			if n++; n > b.after {
				yield(importer.Record{}, errGone)
				return
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// file writes a source of lines.
func file(t *testing.T, lines ...string) importer.Source {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tasks.jsonl")
	if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := importer.Open(t.Context(), name, importer.Tables{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func many(n int) (lines []string) {
	for i := range n {
		lines = append(lines, fmt.Sprintf(`{"id":"00000000-0000-4000-8000-%012d","status":{"state":"completed"}}`, i+1))
	}
	return lines
}

var config = importer.Config{Agent: "words", Owner: "ann", Running: importer.RunningSkip}

func TestInterruptedImportContinues(t *testing.T) {
	t.Parallel()
	m := &memory{tasks: make(map[a2a.ID]tasks.Import)}
	_, err := importer.Import(t.Context(), broken{file(t, many(250)...), 130}, m, config)
	if !errors.Is(err, errGone) || len(m.tasks) != 100 {
		t.Fatalf("%d tasks, %v", len(m.tasks), err)
	}
	report, err := importer.Import(t.Context(), file(t, many(250)...), m, config)
	got := *report.States[a2a.StateCompleted]
	if want := (importer.Counts{Imported: 150, Known: 100}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if want := "[100 100 100 50]"; fmt.Sprint(m.batches) != want {
		t.Errorf("batches of %v, want %s", m.batches, want)
	}
}

func TestDryRunStoresNothing(t *testing.T) {
	t.Parallel()
	m := &memory{tasks: make(map[a2a.ID]tasks.Import)}
	cfg := config
	cfg.DryRun = true
	report, err := importer.Import(t.Context(), file(t, many(3)...), m, cfg)
	if err != nil || report.States[a2a.StateCompleted].Imported != 3 || len(m.tasks) != 0 {
		t.Errorf("%+v, %v; %d tasks stored", report, err, len(m.tasks))
	}
}

func TestProblemsNameTaskAndMember(t *testing.T) {
	t.Parallel()
	const id = `"id":"00000000-0000-4000-8000-000000000001"`
	for _, tc := range []struct{ line, want string }{
		{`{` + id, `line 1 cannot be read: `},
		{`{"status":{"state":"completed"}}`, `line 1 task.id is missing`},
		{`{` + id + `}`, `task.status is missing`},
		{`{` + id + `,"status":{"state":"asleep"}}`, `task.status.state "asleep" is not a state`},
		{`{` + id + `,"status":{"state":"unknown"}}`, `task.status.state is unknown: a2ad has no such state`},
		{`{` + id + `,"status":{"state":"completed","timestamp":"5 pm"}}`,
			`task.status.timestamp "5 pm" is not a time`},
		{`{` + id + `,"status":{"state":"completed"},"history":[{"messageId":"m","parts":[]}]}`,
			`task.history[0].role is missing`},
		{`{` + id + `,"status":{"state":"completed"},"artifacts":[{"artifactId":"a","parts":[{"kind":"text"}]}]}`,
			`task.artifacts[0].parts[0] must have exactly one of text, a file and data`},
		{`{` + id + `,"status":{"state":"completed"},"artifacts":[{"artifactId":"a"},{"artifactId":"a"}]}`,
			`task.artifacts[1].artifactId "a" is the id of an earlier artifact`},
		{`{` + id + `,"status":{"state":"completed"},"metadata":[]}`, `task.metadata must be an object`},
	} {
		var problems []string
		cfg := config
		cfg.Problem = func(task, why string) { problems = append(problems, task+" "+why) }
		m := &memory{tasks: make(map[a2a.ID]tasks.Import)}
		report, err := importer.Import(t.Context(), file(t, tc.line), m, cfg)
		if err != nil || !report.Failed() || len(m.tasks) != 0 {
			t.Errorf("%s: %+v, %v", tc.line, report, err)
		}
		if len(problems) != 1 || !strings.Contains(problems[0], tc.want) {
			t.Errorf("%s: problems %q, want %q", tc.line, problems, tc.want)
		}
	}
}

// A webhook that has changed in the source changes the digest of its task, so the next import says so. How the task is
// imported does not change it.
func TestDigestIsOfTheWebhooksToo(t *testing.T) {
	t.Parallel()
	digest := func(hook string, how func(*importer.Config)) (sum [32]byte) {
		cfg := config
		cfg.Running = importer.RunningSubmit
		cfg.Webhook = func(*a2a.PushConfig) (*webhooks.NewWebhook, error) {
			return &webhooks.NewWebhook{ConfigID: "default"}, nil
		}
		how(&cfg)
		m := &memory{tasks: make(map[a2a.ID]tasks.Import)}
		line := `{"task":{"id":"00000000-0000-4000-8000-000000000001","status":{"state":"working"},"history":` +
			`[{"role":"user","parts":[{"text":"x"}]}]},"pushNotificationConfigs":[{"url":"` + hook + `"}]}`
		if _, err := importer.Import(t.Context(), file(t, line), m, cfg); err != nil || len(m.tasks) != 1 {
			t.Fatalf("%d tasks, %v", len(m.tasks), err)
		}
		for _, it := range m.tasks {
			sum = it.Digest
		}
		return sum
	}
	as := func(*importer.Config) {}
	first := digest("https://example.org/a", as)
	if digest("https://example.org/b", as) == first {
		t.Error("another webhook has the same digest")
	}
	for name, how := range map[string]func(*importer.Config){
		"again": as, "without webhooks": func(c *importer.Config) { c.Webhook = nil },
		"failed": func(c *importer.Config) { c.Running = importer.RunningFail },
	} {
		if digest("https://example.org/a", how) != first {
			t.Errorf("%s: another digest", name)
		}
	}
}

func TestIDsThatAreNotUUIDsAreReplaced(t *testing.T) {
	t.Parallel()
	read := func() (ids []string) {
		m := &memory{tasks: make(map[a2a.ID]tasks.Import)}
		_, err := importer.Import(t.Context(), file(t,
			`{"id":"ticket-1","status":{"state":"completed"},"history":[{"role":"user","parts":[{"text":"x"}]}]}`),
			m, config)
		if err != nil {
			t.Fatal(err)
		}
		for id, it := range m.tasks {
			ids = append(ids, id.String(), it.Task.ContextID, it.Task.History[0].ID)
		}
		return ids
	}
	first, second := read(), read()
	if len(first) != 3 || first[0][14] != '8' || first[1] != first[0] || first[2] != first[0]+"-1" {
		t.Errorf("ids %q", first)
	}
	if fmt.Sprint(first) != fmt.Sprint(second) {
		t.Errorf("the second import makes %q of the same id, the first %q", second, first)
	}
}

// The SDK of JavaScript has the message of the status in the history as well. It keeps the status after the client has
// answered, until the agent does something.
func TestMessageOfTheStatusIsShownOnce(t *testing.T) {
	t.Parallel()
	const ask, asked = `{"messageId":"q","role":"agent","parts":[{"text":"To?"}]}`,
		`{"messageId":"a","role":"user","parts":[{"text":"x"}]}`
	const answered = `{"messageId":"b","role":"user","parts":[{"text":"Rome"}]}`
	const namesake = `{"messageId":"q","role":"user","parts":[{"text":"x"}]}`
	for _, tc := range []struct {
		state, history string
		want           string // ids of the history, the state, and the id of the message of the status
	}{
		{"input-required", asked, "[a] input-required q"},
		{"input-required", asked + "," + ask, "[a] input-required q"},
		{"input-required", asked + "," + ask + "," + answered, "[a q b] working "},
		{"completed", asked + "," + ask + "," + answered, "[a q b] completed "},
		{"input-required", namesake, "[q] input-required q"},
	} {
		m := &memory{tasks: make(map[a2a.ID]tasks.Import)}
		cfg := config
		cfg.Running = importer.RunningSubmit
		line := fmt.Sprintf(`{"id":"00000000-0000-4000-8000-000000000001",`+
			`"status":{"state":%q,"message":%s},"history":[%s]}`, tc.state, ask, tc.history)
		_, err := importer.Import(t.Context(), file(t, line), m, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range m.tasks {
			ids, status := []string{}, ""
			for i := range it.Task.History {
				ids = append(ids, it.Task.History[i].ID)
			}
			if it.Task.Status.Message != nil {
				status = it.Task.Status.Message.ID
			}
			if got := fmt.Sprintf("%v %s %s", ids, it.Task.Status.State, status); got != tc.want {
				t.Errorf("%s with history %s: %s, want %s", tc.state, tc.history, got, tc.want)
			}
		}
		if len(m.tasks) != 1 {
			t.Errorf("%d tasks", len(m.tasks))
		}
	}
}

// The first line of a task counts, even if it is not imported.
func TestOlderVersionsAreLeftOut(t *testing.T) {
	t.Parallel()
	line := func(i int, state string) string {
		return fmt.Sprintf(`{"id":"00000000-0000-4000-8000-%012d","status":{"state":%q}}`, i, state)
	}
	m := &memory{tasks: make(map[a2a.ID]tasks.Import)}
	report, err := importer.Import(t.Context(), file(t, "\ufeff"+line(1, "completed"), line(2, "working"),
		line(3, "asleep"), line(1, "input-required"), line(2, "input-required"), line(3, "input-required"),
		`{"owner":"bob","task":`+line(1, "failed")+`}`), m, importer.Config{Agent: "words", Owner: "ann"})
	if err != nil || report.Older != 3 || report.States[a2a.StateInputRequired] != nil {
		t.Errorf("%+v, %v", report, err)
	}
	report, err = importer.Import(t.Context(), file(t, line(2, "working"), line(2, "input-required")), m, config)
	if err != nil || report.Older != 1 || report.States[a2a.StateWorking].Skipped != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

// What stands beside a task is read as strictly as the task.
func TestMembersBesideTheTask(t *testing.T) {
	t.Parallel()
	const task = `"task":{"id":"00000000-0000-4000-8000-000000000001","status":{"state":"input-required"}}`
	for _, tc := range []struct{ member, problem, left string }{
		{`"tenant":null,"owner":null,"pushNotificationConfigs":null`, "", "map[]"},
		{`"tenant":5`, "tenant has a value of another type", "map[]"},
		{`"owner":["ann"]`, "owner has a value of another type", "map[]"},
		{`"pushNotificationConfigs":{"url":"https://example.org"}`, "has a value of another type", "map[]"},
		{`"tennant":"acme"`, "", "map[tennant:1]"},
		{`"pushNotificationConfigs":["x"]`, "without its webhook", "map[]"},
		{`"pushNotificationConfigs":[{"id":"a\u0000","url":"x"}]`, "or has a NUL", "map[]"},
		{`"pushNotificationConfigs":[{"url":"x"},{"url":"y"}]`, `another one with the id "default"`, "map[]"},
	} {
		problem := ""
		cfg := config
		cfg.Problem = func(_, why string) { problem += why }
		cfg.Webhook = func(c *a2a.PushConfig) (*webhooks.NewWebhook, error) {
			return &webhooks.NewWebhook{ConfigID: cmp.Or(c.ID, "default")}, nil
		}
		m := &memory{tasks: make(map[a2a.ID]tasks.Import)}
		report, err := importer.Import(t.Context(), file(t, `{`+task+`,`+tc.member+`}`), m, cfg)
		if err != nil || fmt.Sprint(report.Left) != tc.left {
			t.Errorf("%s: %+v, %v", tc.member, report, err)
		}
		if !strings.Contains(problem, tc.problem) || tc.problem == "" && problem != "" {
			t.Errorf("%s: problem %q, want %q", tc.member, problem, tc.problem)
		}
	}
}

func TestPlacesForUnknownMembersAreReported(t *testing.T) {
	t.Parallel()
	line := func(i int) string {
		return fmt.Sprintf(`{"id":"00000000-0000-4000-8000-%012d","kind":"task","status":{"state":"completed"},`+
			`"history":[{"role":"user","messageId":"a","parts":[{"text":"x","color":1}],"contextId":"c"},`+
			`{"role":"user","messageId":"b","parts":[{"text":"x","color":1}]}],"mood":"good"}`, i)
	}
	m := &memory{tasks: make(map[a2a.ID]tasks.Import)}
	report, err := importer.Import(t.Context(), file(t, line(1), line(2)), m, config)
	want := map[string]int{"task.history[].parts[].color": 2, "task.mood": 2}
	if err != nil || fmt.Sprint(report.Left) != fmt.Sprint(want) {
		t.Errorf("%v, %v; want %v", report.Left, err, want)
	}
}

func TestRunningTasks(t *testing.T) {
	t.Parallel()
	const head = `{"id":"00000000-0000-4000-8000-000000000001","status":{"state":"working"}`
	const asked = head + `,"history":[{"role":"user","messageId":"a","parts":[{"text":"x"}]}]}`
	for _, tc := range []struct {
		running importer.Running
		line    string
		want    importer.Counts
		fails   bool
	}{
		{importer.RunningSkip, asked, importer.Counts{Skipped: 1}, false},
		{importer.RunningFail, asked, importer.Counts{Imported: 1}, true},
		{importer.RunningSubmit, asked, importer.Counts{Imported: 1}, false},
		{importer.RunningSubmit, head + `}`, importer.Counts{Problems: 1}, false},
	} {
		cfg := config
		cfg.Running = tc.running
		m := &memory{tasks: make(map[a2a.ID]tasks.Import)}
		report, err := importer.Import(t.Context(), file(t, tc.line), m, cfg)
		if got := *report.States[a2a.StateWorking]; err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", tc.running, got, err, tc.want)
		}
		for _, it := range m.tasks {
			if (it.Fail != nil) != tc.fails {
				t.Errorf("%s: %+v", tc.running, it)
			}
		}
	}
}

// FuzzLine checks that no line ends the process or the import, and that what is stored has the ids that a store needs.
func FuzzLine(f *testing.F) {
	f.Add(many(1)[0])
	f.Add(`{"task":{"id":"x","status":{"state":"TASK_STATE_WORKING","message":{"role":1,"parts":[{"data":null}]}}},` +
		`"owner":"o","pushNotificationConfigs":[{"url":1}]}`)
	f.Add(`{"id":"x","context_id":null,"status":{"state":3},` +
		`"artifacts":[{"artifact_id":"a","parts":[{"file":{"bytes":"_w"}}]}]}`)
	f.Fuzz(func(t *testing.T, line string) {
		cfg := config
		cfg.Running = importer.RunningSubmit
		m := &memory{tasks: make(map[a2a.ID]tasks.Import)}
		if _, err := importer.Import(t.Context(), file(t, line), m, cfg); err != nil {
			t.Fatalf("%q ends the import: %v", line, err)
		}
		for id, it := range m.tasks {
			if id.IsZero() || it.Task.ContextID == "" || !it.Task.Status.State.Valid() || it.Owner == "" {
				t.Fatalf("%q is stored as %+v", line, it)
			}
			for _, msg := range it.Task.History {
				if msg.ID == "" || msg.Role == 0 {
					t.Fatalf("%q has the message %+v", line, msg)
				}
			}
		}
	})
}
