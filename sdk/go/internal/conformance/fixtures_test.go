package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

// attempt is an attempt of a fixture. The README of the conformance suite describes it.
type attempt struct {
	Do      []instruction   `json:"do"`
	Run     json.RawMessage `json:"run"`
	Effects []struct {
		Name   string `json:"name"`
		Answer any    `json:"answer"`
	} `json:"effects"`
	Events []any `json:"events"`
	Finish any   `json:"finish"`
}

// In each attempt of the conformance suite, the worker reports what the fixture says. With a fault, the first report is
// lost, or something else than the server answers it. The worker sends it again, and nothing else changes.
func TestFixtures(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../conformance/testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no fixtures: %v", err)
	}
	for f, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var fixture struct {
			Case     string
			Handler  bool
			Attempts []attempt
		}
		if err := decode(text, &fixture); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for n, a := range fixture.Attempts {
			for _, fault := range []int{0, 1 + (f+n)%len(faults)} {
				t.Run(fmt.Sprintf("%s-%d/fault-%d", fixture.Case, n+1, fault), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { play(t, a, fixture.Handler, fault) })
				})
			}
		}
	}
}

func play(t *testing.T, a attempt, handler bool, fault int) {
	var run struct{ Agent string }
	if err := json.Unmarshal(a.Run, &run); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s := &server{run: a.Run, fault: fault, ended: stop}
	w := a2ad.NewWorker(a2ad.Options{
		URL: "http://server", Client: &http.Client{Transport: s}, Logger: slog.New(slog.DiscardHandler),
	})
	register := w.Agent
	if handler {
		register = w.Handler
	}
	register(run.Agent, function(a.Do, &recorded{left: slices.Clone(a.Effects)}), a2ad.Concurrency(1))
	if err := w.Serve(ctx); err != nil {
		t.Errorf("Serve = %v", err)
	}
	var want, got []string
	for _, e := range a.Events {
		want = append(want, string(marshal(e)))
	}
	for _, e := range s.events {
		got = append(got, string(marshal(e)))
	}
	if bytes.Contains(marshal(a.Do), []byte(`"gather":[`)) { // its branches report in any order
		slices.Sort(want)
		slices.Sort(got)
	}
	if !slices.Equal(want, got) {
		t.Errorf("the worker reports\n%s\nand the fixture has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !reflect.DeepEqual(s.finish, a.Finish) {
		t.Errorf("the worker finishes with %v, and the fixture has %v", s.finish, a.Finish)
	}
}

// recorded answers effects as they were answered when the attempt was recorded.
type recorded struct {
	mu   sync.Mutex
	left []struct { // guarded by mu
		Name   string `json:"name"`
		Answer any    `json:"answer"`
	}
}

func (r *recorded) effect(_ context.Context, name, _ string) (any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, e := range r.left {
		if e.Name != name {
			continue
		}
		r.left = slices.Delete(r.left, i, i+1)
		if failed, ok := e.Answer.(map[string]any); ok && failed["error"] != nil {
			return nil, errors.New(failed["error"].(string))
		}
		return e.Answer, nil
	}
	return nil, fmt.Errorf("the effect %s was not recorded", name)
}

// faults are answers to the first report that are not the server's. The first is a lost one.
var faults = []struct {
	status int
	body   string
}{
	{0, ""},
	{503, `{"error": {"reason": "TRY_AGAIN", "message": "a fault"}}`},
	{404, "<html>default backend</html>"},
	{200, `{"status": "maintenance"}`}, // not for finish, which any object answers
}

// server gives a worker one run, and notes what it reports.
type server struct {
	run   json.RawMessage
	ended func()

	mu      sync.Mutex
	claimed bool                       // guarded by mu
	fault   int                        // guarded by mu: 1 + the number of the fault that happens to the next report
	batches map[string]json.RawMessage // guarded by mu: events by the id of their batch
	events  []any                      // guarded by mu
	finish  any                        // guarded by mu
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/heartbeat"):
		return accepted(), nil
	case strings.HasSuffix(r.URL.Path, "/claim") && !s.claimed:
		s.claimed = true
		return respond(200, `{"runs": [`+string(s.run)+`]}`), nil
	case strings.HasSuffix(r.URL.Path, "/claim"): // the worker has one slot, so it takes the run for ended
		s.ended()
		return nil, errors.New("the test has ended")
	case strings.HasSuffix(r.URL.Path, "/events"):
		if err := s.checkLocked(body); err != nil {
			return nil, err
		}
	}
	if s.fault > 0 && !(s.fault == len(faults) && strings.HasSuffix(r.URL.Path, "/finish")) {
		f := faults[s.fault-1]
		s.fault = 0
		if f.status == 0 {
			return nil, errors.New("connection reset")
		}
		return respond(f.status, f.body), nil
	}
	if strings.HasSuffix(r.URL.Path, "/finish") {
		s.finish = steady(body)
		s.ended()
	} else {
		s.acceptLocked(body)
	}
	return accepted(), nil
}

// report is the body of a report of events.
type report struct {
	BatchID string
	Events  json.RawMessage
}

// checkLocked checks that a batch is the same when it is sent again.
func (s *server) checkLocked(body []byte) error {
	var r report
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	if old, ok := s.batches[r.BatchID]; ok && !bytes.Equal(old, r.Events) {
		return fmt.Errorf("the batch %s differs when it is sent again", r.BatchID)
	}
	if s.batches == nil {
		s.batches = make(map[string]json.RawMessage)
	}
	s.batches[r.BatchID] = r.Events
	return nil
}

func (s *server) acceptLocked(body []byte) {
	var r report
	if err := json.Unmarshal(body, &r); err != nil {
		return // checkLocked has returned the error
	}
	events, _ := steady(r.Events).([]any)
	for _, e := range events {
		s.events = appendEvent(s.events, e.(map[string]any))
	}
	if ends(s.events) {
		s.ended()
	}
}

func accepted() *http.Response { return respond(200, `{"cancelRequested": false}`) }

func respond(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

// ends reports whether the last event ends the run.
func ends(events []any) bool {
	last, _ := events[len(events)-1].(map[string]any)
	update, _ := last["statusUpdate"].(map[string]any)
	status, _ := update["status"].(map[string]any)
	return last["wait"] != nil || status != nil && status["state"] != "TASK_STATE_WORKING"
}

// appendEvent appends an event. Text that is appended to the same artifact becomes one event.
func appendEvent(events []any, e map[string]any) []any {
	id, text := appended(e)
	if len(events) == 0 || text == nil {
		return append(events, e)
	}
	lastID, last := appended(events[len(events)-1].(map[string]any))
	if last == nil || id != lastID {
		return append(events, e)
	}
	last["text"] = last["text"].(string) + text["text"].(string)
	return events
}

// appended returns the text part that an event appends to an artifact.
func appended(e map[string]any) (id any, part map[string]any) {
	update, _ := e["artifactUpdate"].(map[string]any)
	artifact, _ := update["artifact"].(map[string]any)
	parts, _ := artifact["parts"].([]any)
	if update["append"] != true || len(parts) != 1 {
		return nil, nil
	}
	part, _ = parts[0].(map[string]any)
	if _, ok := part["text"].(string); !ok || len(part) != 1 {
		return nil, nil
	}
	return artifact["artifactId"], part
}

var someTime = regexp.MustCompile(`"20\d\d-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)"`)

// steady decodes JSON without what differs each time, or by language.
func steady(text []byte) (v any) {
	if err := decode(someTime.ReplaceAll(text, []byte(`"2099-01-01T00:00:00Z"`)), &v); err != nil {
		return err.Error()
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, e := range list {
		withoutTexts(e)
		if wait, ok := e.(map[string]any)["wait"].(map[string]any); ok &&
			strings.Contains(wait["key"].(string), "/pause#") {
			wait["for"] = true
		}
	}
	return v
}

// withoutTexts replaces errors and the message of a failed task by true.
func withoutTexts(v any) {
	m, _ := v.(map[string]any)
	for k := range m {
		switch {
		case k == "error" && m[k] != nil, k == "message" && m["state"] == "TASK_STATE_FAILED":
			m[k] = true
		case k == "step", k == "statusUpdate", k == "status":
			withoutTexts(m[k])
		}
	}
}

func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return []byte(err.Error())
	}
	return text
}
