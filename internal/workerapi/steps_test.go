package workerapi_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/workerapi"
)

// steps reads a page of the steps of a run, and returns their keys.
func (f *fixture) steps(r run, after int) (keys []string, count int) {
	f.t.Helper()
	got := f.ask(f.at, "all", "GET", fmt.Sprintf("%ssteps?after=%d", r.path, after), "")
	want(f.t, got, 200, "")
	var page struct {
		StepCount int
		Steps     []struct{ Key string }
	}
	if err := json.Unmarshal([]byte(got.body), &page); err != nil {
		f.t.Fatal(err)
	}
	for _, s := range page.Steps {
		keys = append(keys, s.Key)
	}
	return keys, page.StepCount
}

func TestWorkerRecordsStepsAndWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	const charge = `{"step":{"key":"charge#1","name":"charge","input":{"amount":5},"result":{"receipt":"r-17"}}}`
	want(t, f.post(r.path+"events", events(charge)), 200, "")
	want(t, f.post(r.path+"events", events(charge, `{"wait":{"key":"approval#1","signal":"approved"}}`)), 200, "")
	want(t, f.post(r.path+"events", events(completed)), 409, "LEASE_LOST")
	signal := "/tasks/" + r.TaskID + "/signals/approved"
	want(t, f.ask(f.at, "all", "POST", signal, `{"value":"yes"}`), 403, "FORBIDDEN")
	want(t, f.ask(f.at, "signaler", "POST", signal, `{"value":"yes"}`), 200, "")
	if n, err := f.Tasks.EndWaits(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("EndWaits = %d, %v, want 1", n, err)
	}
	again := f.claim("words", 1)[0]
	if again.Attempt != 1 || again.StepCount != 2 {
		t.Errorf("the next run is attempt %d with %d steps, want attempt 1 with 2", again.Attempt, again.StepCount)
	}
	const recorded = `{"seq":1,"kind":"step","key":"charge#1","name":"charge",` +
		`"inputSha":"%x","result":{"receipt":"r-17"},"attempts":1,`
	first := fmt.Sprintf(recorded, sha256.Sum256([]byte(`{"amount":5}`)))
	if got := string(again.Steps); !strings.HasPrefix(got, "["+first) ||
		!strings.Contains(got, `"result":{"by" : "signal", "name" : "approved", "value" : "yes"}`) {
		t.Errorf("the next run has the steps %s", got)
	}
	if keys, count := f.steps(again, 1); count != 2 || fmt.Sprint(keys) != "[approval#1]" {
		t.Errorf("after step 1 are %v of %d", keys, count)
	}
	want(t, f.post(again.path+"events", events(completed)), 200, "")
	want(t, f.ask(f.at, "signaler", "POST", signal, ""), 409, a2a.CodeTaskTerminal.Reason())
	// No remote worker serves its agent.
	local := "/tasks/" + f.submit("in-process", "ann").String() + "/signals/approved"
	want(t, f.ask(f.at, "words signaler", "POST", local, ""), 404, "NOT_FOUND")
	want(t, f.ask(f.at, "signaler", "POST", local, ""), 200, "")
	unknown := "/tasks/01000000-0000-7000-8000-000000000000/signals/approved"
	want(t, f.ask(f.at, "signaler", "POST", unknown, ""), 404, "NOT_FOUND")
}

func TestStepsOfARequestAreWrittenTogether(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	for _, tt := range []struct{ name, body, reason string }{
		{"another result", events(`{"step":{"key":"a","result":1}}`, `{"step":{"key":"a","result":2}}`),
			"INVALID_AGENT_RESPONSE"},
		{"an event after a wait", events(`{"wait":{"for":"1h"}}`, working), "INVALID_AGENT_RESPONSE"},
		{"a wait for nothing", events(`{"step":{"key":"a"}}`, `{"wait":{"key":"b"}}`), "INVALID_AGENT_RESPONSE"},
		{"a question without an answer", events(`{"wait":{"for":"1h","status":{"state":"TASK_STATE_INPUT_REQUIRED"}}}`),
			"INVALID_AGENT_RESPONSE"},
		{"no key", events(`{"step":{"result":1}}`), "INVALID_AGENT_RESPONSE"},
		{"a result and an error", events(`{"step":{"key":"a","result":1,"error":2}}`), "INVALID_AGENT_RESPONSE"},
	} {
		want(t, f.post(r.path+"events", tt.body), 400, tt.reason)
		if keys, count := f.steps(r, 0); count != 0 || len(keys) != 0 {
			t.Errorf("%s: the steps %v were recorded", tt.name, keys)
		}
	}
	many := make([]string, 900)
	for i := range many {
		many[i] = fmt.Sprintf(`{"step":{"key":"s#%d","result":%q}}`, i, strings.Repeat("x", 2000))
	}
	for _, part := range [][]string{many[:450], many[450:]} {
		want(t, f.post(r.path+"events", events(part...)), 200, "")
	}
	if keys, _ := f.steps(r, 0); len(keys) == 0 || len(keys) > 1<<20/2000 {
		t.Errorf("a page has %d steps of 2,000 bytes, want up to 1 MiB", len(keys))
	}
	for i := range many {
		many[i] = fmt.Sprintf(`{"step":{"key":"t#%d"}}`, i)
	}
	want(t, f.post(r.path+"events", events(many...)), 200, "")
	var all []string
	for {
		keys, count := f.steps(r, len(all))
		all = append(all, keys...)
		if count != 1800 {
			t.Fatalf("%d steps, want 1800", count)
		}
		if len(keys) == 0 {
			break
		}
	}
	if len(all) != 1800 || all[0] != "s#0" || all[1799] != "t#899" {
		t.Errorf("read %d steps", len(all))
	}
	want(t, f.ask(f.at, "all", "GET", r.path+"steps?after=x", ""), 400, a2a.CodeInvalidRequest.Reason())
}

// A remote worker calls another agent, waits for it, and gets the result with the next run. A repeated request makes no
// second task, and a call that is not allowed makes none.
func TestWorkerCallsAgents(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *workerapi.Config) {
		c.MaxCalls = 2
		c.MayCall = func(agent string, _ *a2a.Message) error {
			if agent != "words" {
				return errors.New("this server has no such agent")
			}
			return nil
		}
	})
	r := f.claimed()
	const call = `{"call":{"key":"sub#%d","agent":"%s","message":{"parts":[{"text":"look it up"}]}}}`
	first := fmt.Sprintf(call, 1, "words")
	want(t, f.post(r.path+"events", events(fmt.Sprintf(call, 1, "unknown"))), 400, "INVALID_AGENT_RESPONSE")
	want(t, f.post(r.path+"events", events(`{"wait":{"tasks":["sub#1"]}}`)), 400, "INVALID_AGENT_RESPONSE")
	want(t, f.post(r.path+"events", events(first)), 200, "")
	want(t, f.post(r.path+"events", events(first, fmt.Sprintf(call, 2, "words"))), 200, "")
	want(t, f.post(r.path+"events", events(fmt.Sprintf(call, 3, "words"))), 400, "INVALID_AGENT_RESPONSE")
	want(t, f.post(r.path+"events", events(strings.Replace(first, "look", "find", 1))), 400, "INVALID_AGENT_RESPONSE")
	wait := `{"wait":{"key":"w","input":["sub#1","sub#2"],"tasks":["sub#1","sub#2"]}}`
	want(t, f.post(r.path+"events", events(wait)), 200, "")
	for _, child := range f.claim("words", 10) {
		if got, _ := json.Marshal(child.Messages); !strings.Contains(string(got), `"a2ad/parent":"`+r.TaskID+`"`) {
			t.Errorf("the called task got the messages %s", got)
		}
		want(t, f.post(child.path+"events", events(completed)), 200, "")
	}
	if n, err := f.Tasks.EndWaits(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("EndWaits = %d, %v, want 1", n, err)
	}
	again := f.claim("words", 1)[0]
	const second = `"kind":"call","key":"sub#2","agent":"words"`
	if got := string(again.Steps); again.StepCount != 3 || !strings.Contains(got, second) ||
		strings.Count(got, `"state":"TASK_STATE_COMPLETED"`) != 2 {
		t.Errorf("the next run has %d steps: %s", again.StepCount, got)
	}
	for of, input := range map[string]string{
		"a call": `{"parts":[{"text":"look it up"}]}`,
		"a wait": `["sub#1","sub#2"]`,
	} {
		sha := fmt.Sprintf(`"inputSha":"%x"`, sha256.Sum256([]byte(input)))
		if !strings.Contains(string(again.Steps), sha) {
			t.Errorf("%s has not %s in the steps of the next run: %s", of, sha, again.Steps)
		}
	}
	for _, refused := range []struct{ event, why string }{
		{wait, `is over`}, {strings.Replace(wait, "sub#2", "sub#3", 1), `nondeterministic step`},
	} {
		got := f.post(again.path+"events", events(refused.event))
		if want(t, got, 400, "INVALID_AGENT_RESPONSE"); !strings.Contains(got.body, refused.why) {
			t.Errorf("%s was refused with %s, want %q", refused.event, got.body, refused.why)
		}
	}
}

// The first try of a step fails before it writes. The next one begins to write, is interrupted, and begins again.
func TestWorkerBeginsToStreamInALaterTry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	const (
		begin = `{"step":{"key":"write#1","name":"write","artifact":"report"}}`
		retry = `{"step":{"key":"write#1","name":"write","error":"busy","nextAt":"2030-01-01T00:00:00Z"}}`
		whole = `{"step":{"key":"write#1","name":"write","result":"whole","attempts":2}}`
		chunk = `{"artifactUpdate":{"artifact":{"artifactId":"report","parts":[{"text":"x"}]},"append":true}}`
	)
	want(t, f.post(r.path+"events", events(chunk, retry)), 200, "")
	want(t, f.post(r.path+"events", events(begin, chunk)), 200, "")
	want(t, f.post(r.path+"events", events(strings.Replace(begin, "report", "letter", 1))), 400,
		"INVALID_AGENT_RESPONSE")
	want(t, f.post(r.path+"events", events(begin, chunk, chunk, whole)), 200, "")
	want(t, f.post(r.path+"events", events(completed)), 200, "")
	entries, err := f.Tasks.EventsAfter(t.Context(), f.id(r), 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var log []bool
	for _, e := range entries {
		if u, ok := e.Event.(*a2a.ArtifactUpdate); ok {
			log = append(log, u.Append)
		}
	}
	if want := []bool{true, true, false, true, true}; !slices.Equal(log, want) {
		t.Errorf("the artifact events append: %v, want %v", log, want)
	}
}

// A remote worker begins a step that streams, and its lease expires. When the next run begins the step again, the log
// gets the artifact as it was before the step.
func TestWorkerRestoresTheArtifactOfAStep(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	const (
		begin = `{"step":{"key":"write#1","name":"write","artifact":"report"}}`
		whole = `{"step":{"key":"write#1","name":"write","result":"whole"}}`
	)
	chunk := func(text string, more bool) string {
		return fmt.Sprintf(`{"artifactUpdate":{"artifact":{"artifactId":"report","parts":[{"text":%q}]},"append":%t}}`,
			text, more)
	}
	first := events(chunk("Intro. ", false), begin, chunk("Ha", true), begin, chunk("Half a sen", true))
	want(t, f.post(r.path+"events", first), 200, "")
	want(t, f.post(r.path+"events", events(strings.Replace(begin, "report", "letter", 1))), 400,
		"INVALID_AGENT_RESPONSE")
	want(t, f.post(r.path+"events", events(strings.Replace(whole, `"result"`, `"artifact":"report","result"`, 1))), 400,
		"INVALID_AGENT_RESPONSE")
	f.expire(r)
	if n, err := f.Tasks.Rescue(t.Context(), nil, tasks.Policy{MaxAttempts: 3}, 10); n != 1 || err != nil {
		t.Fatalf("Rescue = %d, %v, want 1", n, err)
	}
	again := f.claim("words", 1)[0]
	const known = `[{"seq":1,"kind":"step","key":"write#1","name":"write","artifact":"report","attempts":1}]`
	if got := string(again.Steps); got != known {
		t.Errorf("the next run has the steps %s, want %s", got, known)
	}
	want(t, f.post(again.path+"events", events(begin, chunk("Again ha", true), begin)), 200, "")
	want(t, f.post(again.path+"events", events(chunk("A whole sentence.", true), whole)), 200, "")
	want(t, f.post(again.path+"events", events(begin)), 400, "INVALID_AGENT_RESPONSE")
	want(t, f.post(again.path+"events", events(completed)), 200, "")
	entries, err := f.Tasks.EventsAfter(t.Context(), f.id(r), 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var log []string
	for _, e := range entries {
		if u, ok := e.Event.(*a2a.ArtifactUpdate); ok {
			log = append(log, fmt.Sprintf("%t %s", u.Append, u.Artifact.Parts[0].Text))
		}
	}
	wanted := []string{
		"false Intro. ", "true Ha", "false Intro. ", "true Half a sen", // in one request
		"false Intro. ", "true Again ha", "false Intro. ", "true A whole sentence.",
	}
	if got, want := fmt.Sprintf("%q", log), fmt.Sprintf("%q", wanted); got != want {
		t.Errorf("the log has\n%s, want\n%s", got, want)
	}
}
