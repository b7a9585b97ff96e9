package a2adtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
	"github.com/a2ad/a2ad/sdk/go/a2ad/internal/kit"
)

// task is a task as the server keeps it.
type task struct {
	steps      []*record
	log        []reported // statuses and artifacts
	events     []json.RawMessage
	messages   []a2ad.Message
	checkpoint json.RawMessage
	calls      map[string]*call // by key
	usage      map[string]a2ad.Usage
	wait       *wait
	ended      *status
}

// record is a recorded step, wait or call.
type record struct {
	Kind     string          `json:"kind"`
	Key      string          `json:"key"`
	Name     string          `json:"name,omitempty"`
	Agent    string          `json:"agent,omitempty"`
	InputSHA string          `json:"inputSha,omitempty"`
	Artifact string          `json:"artifact,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    json.RawMessage `json:"error,omitempty"`
	Attempts int             `json:"attempts,omitempty"`
	NextAt   string          `json:"nextAt,omitempty"`
	EndedAt  string          `json:"endedAt,omitempty"`

	begun  bool
	length int // of the log when a step first began to stream
}

// reported is an event of a run.
type reported struct {
	Status *struct {
		Status status `json:"status"`
	} `json:"statusUpdate"`
	Artifact   *artifactUpdate `json:"artifactUpdate"`
	Checkpoint json.RawMessage `json:"checkpoint"`
	Step       *stepEvent      `json:"step"`
	Wait       *wait           `json:"wait"`
	Call       *call           `json:"call"`
	Usage      *a2ad.Usage     `json:"usage"`
}

type status struct {
	State   string        `json:"state"`
	Message *a2ad.Message `json:"message"`
}

type artifactUpdate struct {
	Artifact a2ad.Artifact `json:"artifact"`
	Append   bool          `json:"append"`
}

type stepEvent struct {
	record
	Input json.RawMessage `json:"input"`
}

type wait struct {
	Key     string          `json:"key"`
	Until   string          `json:"until"`
	For     string          `json:"for"`
	Message bool            `json:"message"`
	Signal  string          `json:"signal"`
	Tasks   []string        `json:"tasks"`
	Mode    string          `json:"mode"`
	Status  *status         `json:"status"`
	Input   json.RawMessage `json:"input"`
	Expects struct {
		Choices []string        `json:"choices"`
		Schema  json.RawMessage `json:"schema"`
	} `json:"expects"`
}

type call struct {
	Key     string          `json:"key"`
	Agent   string          `json:"agent"`
	Message json.RawMessage `json:"message"`
}

func digest(data []byte) string {
	if data == nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func refuse(format string, args ...any) error { return kit.Refusal{Text: fmt.Sprintf(format, args...)} }

func (t *task) step(key string) *record {
	for _, r := range t.steps {
		if r.Key == key {
			return r
		}
	}
	return nil
}

func (t *task) apply(events []reported) error {
	for i := range events {
		if t.ended != nil || t.wait != nil {
			return refuse("nothing may follow the event that ends the run")
		}
		if err := t.applyOne(&events[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *task) applyOne(e *reported) error {
	switch {
	case e.Step != nil:
		return t.applyStep(e.Step)
	case e.Wait != nil:
		return t.applyWait(e.Wait)
	case e.Call != nil:
		return t.applyCall(e.Call)
	case e.Checkpoint != nil:
		t.checkpoint = e.Checkpoint
	case e.Usage != nil:
		t.applyUsage(*e.Usage)
	default:
		t.log = append(t.log, *e)
		if e.Status != nil && e.Status.Status.State != "TASK_STATE_WORKING" {
			t.ended = &e.Status.Status
		}
	}
	return nil
}

func (t *task) applyUsage(u a2ad.Usage) {
	sum := t.usage[u.Model]
	sum.Model = u.Model
	sum.InputTokens += u.InputTokens
	sum.OutputTokens += u.OutputTokens
	sum.CachedInputTokens += u.CachedInputTokens
	sum.ReasoningTokens += u.ReasoningTokens
	sum.Requests += u.Requests
	t.usage[u.Model] = sum
}

func (t *task) applyStep(v *stepEvent) error {
	next, begins := v.record, v.Artifact != ""
	next.Kind, next.InputSHA, next.Attempts = "step", digest(v.Input), max(next.Attempts, 1)
	if !begins && next.NextAt == "" && next.EndedAt == "" {
		next.EndedAt = "now"
	}
	if begins || next.NextAt != "" {
		next.EndedAt = ""
	}
	old := t.step(v.Key)
	if old == nil {
		next.begun, next.length = begins, len(t.log)
		t.steps = append(t.steps, &next)
		return nil
	}
	switch {
	case old.Kind != "step" || old.Name != next.Name || old.InputSHA != next.InputSHA:
		return refuse("nondeterministic step %q", v.Key)
	case old.EndedAt != "" && (begins || !bytes.Equal(old.Result, next.Result)):
		return refuse("a step has the key %q already", v.Key)
	case old.EndedAt != "":
		return nil
	}
	next.begun, next.length = old.begun, old.length
	if begins && old.begun {
		t.restore(v.Artifact, old.length)
	}
	if begins && !old.begun {
		next.begun, next.length = true, len(t.log)
	}
	if old.Artifact != "" {
		next.Artifact = old.Artifact
	}
	*old = next
	return nil
}

// restore makes an artifact what it was when the log had a length.
func (t *task) restore(id string, length int) {
	written := func(e reported) bool { return e.Artifact != nil && e.Artifact.Artifact.ID == id }
	if !slices.ContainsFunc(t.log[length:], written) {
		return
	}
	was, ok := fold(t.log[:length])[id]
	if !ok {
		was = a2ad.Artifact{ID: id, Parts: []a2ad.Part{a2ad.Text("")}}
	}
	t.log = append(t.log, reported{Artifact: &artifactUpdate{Artifact: was}})
	event, _ := json.Marshal(map[string]any{"artifactUpdate": map[string]any{"artifact": was}}) // it came as JSON
	t.events = append(t.events, event)
}

// fold puts artifacts together from a log.
func fold(log []reported) map[string]a2ad.Artifact {
	all := make(map[string]a2ad.Artifact)
	for _, e := range log {
		if e.Artifact == nil {
			continue
		}
		next := e.Artifact.Artifact
		if old, ok := all[next.ID]; ok && e.Artifact.Append {
			old.Parts = append(slices.Clip(old.Parts), next.Parts...)
			next = old
		}
		all[next.ID] = next
	}
	return all
}

func (t *task) applyWait(w *wait) error {
	old, sha := t.step(w.Key), digest(w.Input)
	switch {
	case old == nil:
		t.steps = append(t.steps, &record{Kind: "wait", Key: w.Key, InputSHA: sha})
	case old.EndedAt != "" || old.Kind != "wait" || old.InputSHA != sha:
		return refuse("nondeterministic step %q", w.Key)
	}
	t.wait = w
	if w.Status != nil {
		e := reported{Status: &struct {
			Status status `json:"status"`
		}{*w.Status}}
		t.log = append(t.log, e)
		event, _ := json.Marshal(map[string]any{"statusUpdate": e.Status}) // it came as JSON
		t.events = append(t.events, event)
	}
	return nil
}

func (t *task) applyCall(c *call) error {
	old, sha := t.step(c.Key), digest(c.Message)
	if old == nil {
		t.steps = append(t.steps, &record{Kind: "call", Key: c.Key, Agent: c.Agent, InputSHA: sha})
		t.calls[c.Key] = c
		return nil
	}
	if old.Kind != "call" || old.Agent != c.Agent || old.InputSHA != sha {
		return refuse("nondeterministic step %q", c.Key)
	}
	return nil
}
