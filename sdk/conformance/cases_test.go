package conformance_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// testCase is one case of a file in cases. README.md describes the members.
type testCase struct {
	Case    string
	Why     string
	Send    string // the text of the first message
	Handler bool   // the agent is a function for messages

	Concurrency int    // of the agent; by default 1
	Limits      string // of the agent's file
	Grace       *float64
	Agents      []string // other agents, whose worker is the runner
	OwnServer   bool     `yaml:"ownServer"`
	Varies      bool     // has no fixture
	Do          program
	World       map[string][]any
	Play        []act
	Faults      []fault
	Want        want
}

// program is an agent, as JSON in the order of the file: the first member of an instruction is its verb.
type program json.RawMessage

func (p *program) UnmarshalYAML(text []byte) error {
	data, err := yaml.YAMLToJSON(text)
	*p = bytes.TrimSpace(data)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *program) UnmarshalJSON(text []byte) error {
	*p = bytes.Clone(text)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (p program) MarshalJSON() ([]byte, error) { return p, nil }

// act is something that the client, the operator or the runner does. One member is its verb.
type act struct {
	Answer    any      // a message of the client: a text, or {data: …}
	Await     *waitFor // the next act comes after this has happened
	Signal    string   // by another system
	Cancel    bool     // by the client
	Kill      string   // the worker (and start another one), or the server (and start it again)
	Stop      bool     // tell the worker to stop, await its end, and start another one
	Terminate bool     // tell the worker to stop
	Freeze    bool     // the worker, and start another one
	Thaw      bool     // the frozen worker
	Release   string   // effects that are held
	Pass      bool     // time, until the wait of the task is over
	Complete  string   // the task of another agent
	Failing   string   // fail that task

	Refused bool    // the answer must be refused
	Value   any     // of the signal
	Text    string  // of the completed task
	With    program // of the new worker
}

// waitFor is what an act waits for. All members that are set must hold.
type waitFor struct {
	State    string // of the task
	Artifact string // that contains the text
	Text     string // of the artifact, by default of answer
	Effect   string // has begun
	Times    int    // of the effect, by default 1
	Step     string // key of a recorded step
	Refused  string // reason with which the server has refused a request
	Asked    string // agent that has a task

	Attempts   int  // of the task have begun
	Heartbeats int  // of the worker were answered
	Exited     bool // the worker has ended

	// the server has canceled the tasks that the ended task called, but for those that it abandoned
	OrphansCanceled bool `yaml:"orphansCanceled"`
}

// fault is what happens to a request from the worker to the server.
type fault struct {
	At    string // what the request reports: see describe
	Nth   int    // of these requests, by default the first
	Times int    // how many of them, by default one
	Each  bool   // each request that reports something new
	Do    string // see faults
}

// want is the expected outcome.
type want struct {
	State     string
	Text      *string // of the last message; /…/ is a regular expression
	Data      any     // of the last message
	Artifacts map[string]any
	Steps     []string
	Attempts  []string
	Effects   map[string]int
	Stream    []string
	Children  map[string]string // states of the tasks of other agents
	Usage     map[string]string // tokens of the input and the output, by model
}

// unawaited returns an effect that hangs, and that the play does not await before it ends the worker. The new worker
// would get the answer for the old one.
func (c *testCase) unawaited() string {
	begun := make(map[string]bool)
	for _, a := range c.Play {
		if a.Await != nil {
			begun[a.Await.Effect] = true
		}
		if a.Kill != "worker" && !a.Stop && !a.Freeze {
			continue
		}
		for effect, answers := range c.World {
			if len(answers) > 0 && answers[0] == "hang" && !begun[effect] {
				return effect
			}
		}
	}
	return ""
}

func loadCases(t *testing.T) []testCase {
	t.Helper()
	files, err := filepath.Glob("cases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no cases: %v", err)
	}
	var all []testCase
	names := make(map[string]bool)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list []testCase
		if err := yaml.UnmarshalWithOptions(text, &list, yaml.Strict()); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i := range list {
			c := &list[i]
			if c.Case == "" || c.Why == "" || c.Do == nil || c.Want.State == "" || names[c.Case] {
				t.Fatalf("%s: case %d (%s) needs a unique case, and why, do and want.state", file, i+1, c.Case)
			}
			if effect := c.unawaited(); effect != "" {
				t.Fatalf("%s: %s kills a worker that may not have begun %s yet, which hangs: await it first",
					file, c.Case, effect)
			}
			names[c.Case] = true
			c.Send = cmp.Or(c.Send, "Lyon")
		}
		all = append(all, list...)
	}
	return all
}

// agentFile is the file of an agent on the server.
func agentFile(name, limits string) string {
	if !strings.Contains(limits, "max_attempts") {
		limits = strings.TrimPrefix(limits+", max_attempts: 50", ", ")
	}
	if !strings.Contains(limits, "lease_ttl") {
		limits += ", lease_ttl: 30s"
	}
	return "name: " + name + "\ndescription: A case.\nexecutor: {pull: {}}\n" +
		"limits: {" + limits + ", backoff: {base: 20ms, max: 100ms}}\n"
}
