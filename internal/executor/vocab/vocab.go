// Package vocab is the vocabulary, in JSON, between a2ad and an agent outside its process: the run object goes out, and
// events come back in the terms of an A2A 1.0 StreamResponse. It is the same over pipes and over HTTP.
//
// It knows neither processes nor requests. Free-form values keep their bytes in both directions.
//
// # Events
//
// Each event is an object with exactly one member:
//
//	{"statusUpdate":   {"status": {"state": "TASK_STATE_WORKING", "message": {"parts": [{"text": "…"}]}},
//	                    "metadata": {…}}}
//	{"artifactUpdate": {"artifact": {"artifactId": "a", "name": "…", "parts": [{"text": "…"}]},
//	                    "append": false, "lastChunk": true}}
//	{"message":        {"parts": [{"text": "…"}]}}
//	{"checkpoint":     any JSON value}
//	{"step":           {"key": "charge#1", "name": "charge", "result": …}}
//	{"step":           {"key": "write#1", "name": "write", "artifact": "report"}}
//	{"wait":           {"key": "pause#1", "for": "24h"}}
//	{"call":           {"key": "research#1", "agent": "research", "message": {"parts": [{"text": "…"}]}}}
//	{"usage":          {"model": "gpt-5", "inputTokens": 12, "outputTokens": 34, "requests": 1}}
//
// States may also have their 0.3 names (working, input-required). An agent cannot set submitted and canceled. taskId
// and contextId may be omitted; otherwise they must be the ids of the run. If messageId or artifactId is omitted, the
// decoder chooses one: an artifact without append gets a new id, and one with append extends the artifact of the
// previous event. The default role is the agent's. A timestamp is ignored, because the database's clock decides. A
// member that is null counts as omitted, except data. An unknown member is an error: otherwise a misspelled member
// would silently lose output.
package vocab

import (
	"slices"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// Run is what an agent learns about its run.
type Run struct {
	Task        *a2a.Task
	Tenant      string
	Owner       string
	Messages    []a2a.Message
	Epoch       int64
	Attempt     int
	Deadline    time.Time // zero: none
	Checkpoint  a2a.Raw   // nil: none
	Steps       []a2a.StepRecord
	StepCount   int             // how many steps are recorded; more than Steps has if those are a page
	Traceparent a2a.Traceparent // empty: none
}

// AppendRun appends the run object as one line. First come the ids of task and context, the key of the context,
// tenant, owner, agent, epoch, attempt, deadline and traceparent. The task and its new messages follow as 1.0
// JSON. Then come the metadata of the requests with these messages, the checkpoint, the steps, and the active
// extensions.
// Empty members are omitted.
func AppendRun(dst []byte, r *Run) []byte {
	start := len(dst)
	w := writer{append(dst, '{')}
	w.str("taskId", r.Task.ID.String())
	w.str("contextId", r.Task.ContextID)
	w.str("contextKey", executor.ContextKey(r.Tenant, r.Owner, r.Task.ContextID))
	w.str("tenant", r.Tenant)
	w.str("owner", r.Owner)
	w.str("agent", r.Task.Agent)
	w.key("epoch")
	w.b = strconv.AppendInt(w.b, r.Epoch, 10)
	w.key("attempt")
	w.b = strconv.AppendInt(w.b, int64(r.Attempt), 10)
	if !r.Deadline.IsZero() {
		w.time("deadline", r.Deadline)
	}
	w.optional("traceparent", string(r.Traceparent))
	w.key("task")
	w.task(r.Task)
	w.key("messages")
	w.messages(r.Messages)
	w.requests(r.Messages)
	w.raw("checkpoint", r.Checkpoint)
	w.steps(r.Steps, r.StepCount)
	w.strs("extensions", activated(r.Messages))
	// In valid JSON a line break is only white space between tokens.
	for i := start; i < len(w.b); i++ {
		if w.b[i] == '\n' || w.b[i] == '\r' {
			w.b[i] = ' '
		}
	}
	return append(w.b, '}')
}

// activated returns the extensions that are active for messages, each once.
func activated(messages []a2a.Message) (uris []string) {
	for i := range messages {
		for _, uri := range messages[i].Activated {
			if !slices.Contains(uris, uri) {
				uris = append(uris, uri)
			}
		}
	}
	return uris
}

type writer struct{ b []byte }

// key starts a member.
func (w *writer) key(k string) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(rawjson.AppendString(w.b, k), ':')
}

func (w *writer) str(k, v string) {
	w.key(k)
	w.b = rawjson.AppendString(w.b, v)
}

// optional omits an empty text.
func (w *writer) optional(k, v string) {
	if v != "" {
		w.str(k, v)
	}
}

func (w *writer) raw(k string, v a2a.Raw) {
	if v != nil {
		w.key(k)
		w.b = append(w.b, v...)
	}
}

func (w *writer) time(k string, t time.Time) {
	w.str(k, t.UTC().Format("2006-01-02T15:04:05.000Z"))
}

func (w *writer) strs(k string, v []string) {
	if len(v) == 0 {
		return
	}
	w.key(k)
	w.b = append(w.b, '[')
	for i, s := range v {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = rawjson.AppendString(w.b, s)
	}
	w.b = append(w.b, ']')
}

// list writes n values, each by one.
func (w *writer) list(n int, one func(i int)) {
	w.b = append(w.b, '[')
	for i := range n {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = append(w.b, '{')
		one(i)
		w.b = append(w.b, '}')
	}
	w.b = append(w.b, ']')
}

func (w *writer) task(t *a2a.Task) {
	w.b = append(w.b, '{')
	w.str("id", t.ID.String())
	w.str("contextId", t.ContextID)
	w.key("status")
	w.b = append(w.b, '{')
	w.str("state", stateName(t.Status.State))
	if t.Status.Message != nil {
		w.key("message")
		w.b = append(w.b, '{')
		w.message(t.Status.Message)
		w.b = append(w.b, '}')
	}
	if !t.Status.Time.IsZero() {
		w.time("timestamp", t.Status.Time)
	}
	w.b = append(w.b, '}')
	if len(t.Artifacts) > 0 {
		w.key("artifacts")
		w.list(len(t.Artifacts), func(i int) { w.artifact(&t.Artifacts[i]) })
	}
	if len(t.History) > 0 {
		w.key("history")
		w.messages(t.History)
	}
	w.raw("metadata", t.Metadata)
	w.b = append(w.b, '}')
}

func (w *writer) messages(ms []a2a.Message) {
	w.list(len(ms), func(i int) { w.message(&ms[i]) })
}

// requests writes the metadata of the messages' requests: one value for each message.
func (w *writer) requests(ms []a2a.Message) {
	if !slices.ContainsFunc(ms, func(m a2a.Message) bool { return m.RequestMetadata != nil }) {
		return
	}
	w.key("requestMetadata")
	w.b = append(w.b, '[')
	for i := range ms {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		if ms[i].RequestMetadata == nil {
			w.b = append(w.b, "null"...)
		}
		w.b = append(w.b, ms[i].RequestMetadata...)
	}
	w.b = append(w.b, ']')
}

func (w *writer) message(m *a2a.Message) {
	w.str("messageId", m.ID)
	w.optional("contextId", m.ContextID)
	w.optional("taskId", m.TaskID)
	if m.Role == a2a.RoleAgent {
		w.str("role", "ROLE_AGENT")
	} else {
		w.str("role", "ROLE_USER")
	}
	w.parts(m.Parts)
	w.raw("metadata", m.Metadata)
	w.strs("extensions", m.Extensions)
	w.strs("referenceTaskIds", m.ReferenceTaskIDs)
}

func (w *writer) artifact(a *a2a.Artifact) {
	w.str("artifactId", a.ID)
	w.optional("name", a.Name)
	w.optional("description", a.Description)
	w.parts(a.Parts)
	w.raw("metadata", a.Metadata)
	w.strs("extensions", a.Extensions)
}

func (w *writer) parts(ps []a2a.Part) {
	w.key("parts")
	w.list(len(ps), func(i int) {
		p := &ps[i]
		switch p.Kind {
		case a2a.PartText:
			w.str("text", p.Text)
		case a2a.PartFile:
			w.str("raw", p.Text)
		case a2a.PartURL:
			w.str("url", p.Text)
		case a2a.PartData:
			w.raw("data", p.Data)
		}
		w.raw("metadata", p.Metadata)
		w.optional("filename", p.Filename)
		w.optional("mediaType", p.MediaType)
	})
}

var stateNames = map[a2a.State]string{
	a2a.StateSubmitted: "TASK_STATE_SUBMITTED", a2a.StateWorking: "TASK_STATE_WORKING",
	a2a.StateInputRequired: "TASK_STATE_INPUT_REQUIRED", a2a.StateAuthRequired: "TASK_STATE_AUTH_REQUIRED",
	a2a.StateCompleted: "TASK_STATE_COMPLETED", a2a.StateFailed: "TASK_STATE_FAILED",
	a2a.StateCanceled: "TASK_STATE_CANCELED", a2a.StateRejected: "TASK_STATE_REJECTED",
}

var stateByName = func() map[string]a2a.State {
	m := make(map[string]a2a.State, len(stateNames))
	for s, n := range stateNames {
		m[n] = s
	}
	return m
}()

func stateName(s a2a.State) string {
	if n, ok := stateNames[s]; ok {
		return n
	}
	return "TASK_STATE_UNSPECIFIED"
}
