package conformance_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the fixtures in testdata, as the first driver behaves")

// maxFixture is the size from which an attempt is left out of the fixtures.
const maxFixture = 20 << 10

// soon is the longest pause between two tries that the worker waits itself.
const soon = 10 * time.Second

// fixture has the attempts of a case that ended by themselves. The tests of the libraries play them without a server.
type fixture struct {
	Case     string         `json:"case"`
	Handler  bool           `json:"handler,omitempty"`
	Attempts []fixedAttempt `json:"attempts"`
}

// fixedAttempt is an attempt without what differs each time. README.md describes the members.
type fixedAttempt struct {
	Do      program  `json:"do"`
	Run     any      `json:"run"`
	Effects []effect `json:"effects"`
	Events  []any    `json:"events"`
	Finish  any      `json:"finish,omitempty"`
}

// checkFixtures checks that every fixture belongs to a case.
func checkFixtures(t *testing.T, cases []testCase) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 && !*update {
		t.Fatalf("there are no fixtures: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if !slices.ContainsFunc(cases, func(c testCase) bool { return c.Case == name }) {
			t.Errorf("%s has no case: remove it", file)
		}
	}
}

// compareFixture compares what the workers did in a case with its fixture, or writes the fixture. What they were given
// may differ: the branches of gather are recorded in any order.
func (s *scene) compareFixture() {
	s.t.Helper()
	got := s.fixture()
	path := filepath.Join("testdata", s.Case+".json")
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		text, err = []byte(`{}`), nil
	}
	want := fixture{Case: s.Case, Handler: s.Handler}
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	diff := cmp.Diff(string(want.done()), string(got.done()))
	switch {
	case err != nil:
	case diff == "":
	case !*update:
		s.t.Errorf("%s differs (-file +this worker):\n%s", path, diff)
	case len(got.Attempts) == 0:
		err = os.Remove(path)
	default:
		err = os.WriteFile(path, steady(layout(marshal(got))), 0o644)
	}
	if err != nil {
		s.t.Errorf("the fixture: %v", err)
	}
}

// done returns what the workers did, in the form of the file.
func (f fixture) done() []byte {
	f.Attempts = slices.Clone(f.Attempts)
	for i := range f.Attempts {
		f.Attempts[i].Run = nil
	}
	return steady(layout(marshal(f)))
}

// fixture returns the fixture of what the workers have done.
func (s *scene) fixture() fixture {
	f := fixture{Case: s.Case, Handler: s.Handler}
	if s.Varies {
		return f
	}
	s.traffic.mu.Lock()
	defer s.traffic.mu.Unlock()
	for _, a := range s.traffic.attempts {
		fixed := a.fix()
		again := len(f.Attempts) > 0 && bytes.Equal(f.Attempts[len(f.Attempts)-1].done(), fixed.done())
		if a.ended && !a.spoiled && !again && fixed.same() && len(marshal(fixed)) < maxFixture {
			f.Attempts = append(f.Attempts, fixed)
		}
	}
	return f
}

// same reports whether an attempt reports the same each time. It does not if it fails while text is being sent, or if
// the worker is stopped.
func (f *fixedAttempt) same() bool {
	if finish, ok := f.Finish.(map[string]any); ok && finish["outcome"] == "release" {
		return false
	}
	return f.Finish == nil || len(f.Events) == 0 || appendedText(f.Events[len(f.Events)-1].(map[string]any)) == nil
}

// done returns what the worker did.
func (f fixedAttempt) done() []byte {
	f.Run = nil
	return steady(marshal(f))
}

func (a *attempt) fix() fixedAttempt {
	f := fixedAttempt{Do: a.do, Effects: a.effects, Events: []any{}}
	slices.SortStableFunc(f.Effects, func(x, y effect) int { return strings.Compare(x.Name, y.Name) })
	run := decode(a.run).(map[string]any)
	run["epoch"] = 1
	steps, _ := run["steps"].([]any)
	for _, s := range steps {
		step := s.(map[string]any)
		if next, err := time.Parse(time.RFC3339, fmt.Sprint(step["nextAt"])); err == nil && time.Until(next) < soon {
			step["nextAt"] = "1999-01-01T00:00:00Z" // so that no test waits for it
		}
	}
	f.Run = run
	for _, e := range a.events {
		f.Events = appendEvent(f.Events, withoutPause(withoutErrors(decode(e)).(map[string]any)))
	}
	if bytes.Contains(a.do, []byte(`"gather"`)) { // its branches report in any order
		slices.SortFunc(f.Events, func(x, y any) int {
			return bytes.Compare(steady(marshal(x)), steady(marshal(y)))
		})
	}
	if a.finish != nil {
		f.Finish = withoutErrors(decode(a.finish))
	}
	return f
}

// appendEvent appends an event. Text that was appended to the same artifact becomes one event.
func appendEvent(events []any, e map[string]any) []any {
	text := appendedText(e)
	if len(events) == 0 || text == nil {
		return append(events, e)
	}
	last := appendedText(events[len(events)-1].(map[string]any))
	if last == nil || last.artifact != text.artifact {
		return append(events, e)
	}
	last.part["text"] = last.part["text"].(string) + text.part["text"].(string)
	return events
}

// appended is a text part that an event appends to an artifact.
type appended struct {
	artifact any
	part     map[string]any
}

func appendedText(e map[string]any) *appended {
	u, _ := e["artifactUpdate"].(map[string]any)
	a, _ := u["artifact"].(map[string]any)
	parts, _ := a["parts"].([]any)
	if u["append"] != true || len(parts) != 1 {
		return nil
	}
	part, _ := parts[0].(map[string]any)
	if _, ok := part["text"].(string); !ok || len(part) != 1 {
		return nil
	}
	return &appended{a["artifactId"], part}
}

// withoutErrors replaces errors and the message of a failed task, whose texts differ by language, by true.
func withoutErrors(v any) any {
	m, _ := v.(map[string]any)
	for k := range maps.Keys(m) {
		switch {
		case k == "error" && m[k] != nil, k == "message" && m["state"] == "TASK_STATE_FAILED":
			m[k] = true
		case k == "step", k == "statusUpdate", k == "status":
			withoutErrors(m[k])
		}
	}
	return v
}

// withoutPause replaces the rest of a pause between two tries by true.
func withoutPause(e map[string]any) map[string]any {
	if wait, ok := e["wait"].(map[string]any); ok && strings.Contains(fmt.Sprint(wait["key"]), "/pause#") {
		wait["for"] = true
	}
	return e
}

var (
	someID = regexp.MustCompile(
		`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\bmsg-[A-Z2-7]{26}|\b[0-9]+-message-[0-9]+`)
	someFolder = regexp.MustCompile(`(?:/[\w.-]+)+/(\w+\.\w+:[0-9]+)`) // of the line of a mistake
	someTime   = regexp.MustCompile(`"20\d\d-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)"`)
)

// steady replaces ids, times and folders, which differ each time.
func steady(text []byte) []byte {
	ids := make(map[string]string)
	text = someID.ReplaceAllFunc(text, func(id []byte) []byte {
		if ids[string(id)] == "" {
			ids[string(id)] = fmt.Sprintf("00000000-0000-4000-8000-%012d", len(ids)+1)
		}
		return []byte(ids[string(id)])
	})
	text = someFolder.ReplaceAll(text, []byte("$1"))
	return someTime.ReplaceAll(text, []byte(`"2099-01-01T00:00:00Z"`))
}

// layout puts each attempt, each of its members and each of its events on a line.
func layout(text []byte) []byte {
	var out bytes.Buffer
	_ = json.Indent(&out, text, "", "\t") // it was marshaled
	var lines []string
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		depth := len(line) - len(strings.TrimLeft(line, "\t"))
		closes := strings.HasPrefix(strings.TrimSpace(line), "}") || strings.HasPrefix(strings.TrimSpace(line), "]")
		if n := len(lines); n > 0 && (depth > 4 || depth == 4 && closes) {
			if strings.HasSuffix(lines[n-1], ",") {
				lines[n-1] += " "
			}
			lines[n-1] += strings.TrimSpace(line)
			continue
		}
		lines = append(lines, line)
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}

func decode(text []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return map[string]any{"unreadable": err.Error()}
	}
	return v
}

func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return []byte(err.Error())
	}
	return text
}
