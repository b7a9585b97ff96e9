package interop

import (
	"iter"
	"net/http"
	"slices"
	"testing"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2aclient"
	"github.com/a2aproject/a2a-go/a2aclient/agentcard"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The agents of `a2ad dev`.
const (
	echoAgent   = "/"
	scriptAgent = "/agents/script"
)

// peer is an official client of one agent, with helpers for tests.
type peer struct {
	*a2aclient.Client
	t    *testing.T
	card *a2a.AgentCard
}

// dial finds an agent on the shared server by its card, as the client's documentation says.
func dial(t *testing.T, agent string, opts ...a2aclient.FactoryOption) *peer {
	t.Helper()
	return dialAt(t, "http://"+sharedReplica(t).api, agent, opts...)
}

func dialAt(t *testing.T, base, agent string, opts ...a2aclient.FactoryOption) *peer {
	t.Helper()
	return dialWith(t, httpClient(t), base, agent, opts...)
}

func dialWith(t *testing.T, h *http.Client, base, agent string, opts ...a2aclient.FactoryOption) *peer {
	t.Helper()
	ctx := testContext(t)
	card, err := agentcard.NewResolver(h).Resolve(ctx, base+agent)
	if err != nil {
		t.Fatalf("resolve the card: %v", err)
	}
	c, err := a2aclient.NewFromCard(ctx, card, append([]a2aclient.FactoryOption{a2aclient.WithJSONRPCTransport(h)},
		opts...)...)
	if err != nil {
		t.Fatalf("make a client from the card: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Destroy(); err != nil {
			t.Errorf("destroy the client: %v", err)
		}
	})
	return &peer{Client: c, t: t, card: card}
}

// httpClient has its own connections, which close with the test, and no time limit, which would end streams.
func httpClient(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func polling() a2aclient.FactoryOption {
	return a2aclient.WithConfig(a2aclient.Config{Polling: true})
}

// headers adds these headers to every call.
func headers(h map[string]string) a2aclient.FactoryOption {
	meta := a2aclient.CallMeta{}
	for k, v := range h {
		meta[k] = []string{v}
	}
	return a2aclient.WithInterceptors(a2aclient.NewStaticCallMetaInjector(meta))
}

// send returns the task that a message creates or continues.
func (p *peer) send(m *a2a.Message) *a2a.Task {
	p.t.Helper()
	result, err := p.SendMessage(testContext(p.t), &a2a.MessageSendParams{Message: m})
	if err != nil {
		p.t.Fatalf("send: %v", err)
	}
	return p.task(result)
}

func (p *peer) task(result a2a.SendMessageResult) *a2a.Task {
	p.t.Helper()
	task, ok := result.(*a2a.Task)
	if !ok {
		p.t.Fatalf("the answer to a message is %T, want a task", result)
	}
	return task
}

func (p *peer) stream(m *a2a.Message) *events {
	return p.open(p.SendStreamingMessage(testContext(p.t), &a2a.MessageSendParams{Message: m}))
}

func (p *peer) resubscribe(id a2a.TaskID) *events {
	return p.open(p.ResubscribeToTask(testContext(p.t), &a2a.TaskIDParams{ID: id}))
}

func (p *peer) get(id a2a.TaskID) *a2a.Task {
	p.t.Helper()
	task, err := p.GetTask(testContext(p.t), &a2a.TaskQueryParams{ID: id})
	if err != nil {
		p.t.Fatalf("get: %v", err)
	}
	return task
}

// events is a stream that a test reads step by step.
type events struct {
	t    *testing.T
	next func() (a2a.Event, error, bool)
	stop func()
	seen []a2a.Event
}

func (p *peer) open(seq iter.Seq2[a2a.Event, error]) *events {
	e := &events{t: p.t}
	e.next, e.stop = iter.Pull2(seq)
	p.t.Cleanup(e.stop)
	return e
}

// until reads up to the first wanted event and returns it.
func (e *events) until(what string, wanted func(a2a.Event) bool) a2a.Event {
	e.t.Helper()
	for {
		event, err, ok := e.next()
		if err != nil {
			e.t.Fatalf("stream, waiting for %s: %v", what, err)
		}
		if !ok {
			e.t.Fatalf("the stream has ended before %s; it had %s", what, sketch(e.seen))
		}
		e.seen = append(e.seen, event)
		if wanted(event) {
			return event
		}
	}
}

func (e *events) first() *a2a.Task {
	e.t.Helper()
	event := e.until("its first event", func(a2a.Event) bool { return true })
	task, ok := event.(*a2a.Task)
	if !ok {
		e.t.Fatalf("the first event is %s, want a task", sketch(e.seen))
	}
	return task
}

func (e *events) untilState(s a2a.TaskState) {
	e.t.Helper()
	e.until("the state "+string(s), func(event a2a.Event) bool {
		switch event := event.(type) {
		case *a2a.Task:
			return event.Status.State == s
		case *a2a.TaskStatusUpdateEvent:
			return event.Status.State == s
		}
		return false
	})
}

func (e *events) untilChunk(id a2a.ArtifactID, last bool) {
	e.t.Helper()
	e.until("a chunk of "+string(id), func(event a2a.Event) bool {
		u, ok := event.(*a2a.TaskArtifactUpdateEvent)
		return ok && u.Artifact.ID == id && u.LastChunk == last
	})
}

// rest reads to the regular end, and returns all events of the stream.
func (e *events) rest() []a2a.Event {
	e.t.Helper()
	for {
		event, err, ok := e.next()
		if err != nil {
			e.t.Fatalf("stream: %v, after %s", err, sketch(e.seen))
		}
		if !ok {
			return e.seen
		}
		e.seen = append(e.seen, event)
	}
}

// failure reads to the error that must end the stream.
func (e *events) failure() error {
	e.t.Helper()
	for {
		event, err, ok := e.next()
		if err != nil {
			return err
		}
		if !ok {
			e.t.Fatalf("the stream has ended without an error, after %s", sketch(e.seen))
		}
		e.seen = append(e.seen, event)
	}
}

// message returns a user message with one text.
func message(text string) *a2a.Message {
	return a2a.NewMessage(a2a.MessageRoleUser, a2a.TextPart{Text: text})
}

func reply(task a2a.TaskInfoProvider, text string) *a2a.Message {
	return a2a.NewMessageForTask(a2a.MessageRoleUser, task, a2a.TextPart{Text: text})
}

type op map[string]any

// script returns a message that tells the agent script what to do.
func script(ops ...op) *a2a.Message {
	return a2a.NewMessage(a2a.MessageRoleUser, a2a.DataPart{Data: scriptData(ops)})
}

// scriptData uses only types that the clients can put into a gRPC message.
func scriptData(ops []op) map[string]any {
	list := make([]any, len(ops))
	for i, o := range ops {
		list[i] = map[string]any(o)
	}
	return map[string]any{"script": list}
}

func chunks(id string, n int) op { return op{"op": "chunk", "id": id, "n": n} }

// fold returns what a client that follows a stream knows of the task, by the rules of A2A 0.3.0 for events and
// nothing else.
func fold(t *testing.T, stream []a2a.Event) *a2a.Task {
	t.Helper()
	var task *a2a.Task
	for i, event := range stream {
		if i == 0 {
			first, ok := event.(*a2a.Task)
			if !ok {
				t.Fatalf("the stream begins with %s, want a task", sketch(stream[:1]))
			}
			whole := *first
			whole.Artifacts = slices.Clone(first.Artifacts)
			task = &whole
			continue
		}
		apply(t, task, event)
	}
	return task
}

func apply(t *testing.T, task *a2a.Task, event a2a.Event) {
	t.Helper()
	if info := event.TaskInfo(); info != task.TaskInfo() {
		t.Errorf("an event is of %+v, the task is %+v", info, task.TaskInfo())
	}
	switch event := event.(type) {
	case *a2a.TaskStatusUpdateEvent:
		if old := task.Status.Message; old != nil {
			task.History = append(task.History, old)
		}
		task.Status = event.Status
	case *a2a.TaskArtifactUpdateEvent:
		applyArtifact(t, task, event)
	default:
		t.Errorf("a %T in the middle of a stream", event)
	}
}

func applyArtifact(t *testing.T, task *a2a.Task, u *a2a.TaskArtifactUpdateEvent) {
	t.Helper()
	at := slices.IndexFunc(task.Artifacts, func(a *a2a.Artifact) bool { return a.ID == u.Artifact.ID })
	switch {
	case u.Append && at < 0:
		t.Errorf("artifact %s is appended to before it exists", u.Artifact.ID)
	case u.Append:
		whole := *task.Artifacts[at]
		whole.Parts = slices.Concat(whole.Parts, u.Artifact.Parts)
		task.Artifacts[at] = &whole
	case at < 0:
		task.Artifacts = append(task.Artifacts, u.Artifact)
	default:
		task.Artifacts[at] = u.Artifact
	}
}

// checkStream checks a complete stream against the rules of 0.3.0 for every stream.
func checkStream(t *testing.T, stream []a2a.Event) {
	t.Helper()
	if len(stream) == 0 {
		t.Fatal("the stream has no events")
	}
	for i, event := range stream {
		u, ok := event.(*a2a.TaskStatusUpdateEvent)
		final := ok && u.Final
		if last := i == len(stream)-1; final != last {
			t.Errorf("event %d of %d: final is %v; the events are %s", i, len(stream), final, sketch(stream))
		}
	}
}

// sketch summarizes a stream.
func sketch(stream []a2a.Event) string {
	text := "["
	for i, event := range stream {
		if i > 0 {
			text += " "
		}
		switch event := event.(type) {
		case *a2a.Task:
			text += "task:" + string(event.Status.State)
		case *a2a.TaskStatusUpdateEvent:
			text += string(event.Status.State)
		case *a2a.TaskArtifactUpdateEvent:
			text += "chunk:" + string(event.Artifact.ID)
		default:
			text += "message"
		}
	}
	return text + "]"
}

// texts returns the parts of an artifact, which must all be text.
func texts(t *testing.T, task *a2a.Task, id a2a.ArtifactID) []string {
	t.Helper()
	var list []string
	for _, artifact := range task.Artifacts {
		if artifact.ID != id {
			continue
		}
		for _, part := range artifact.Parts {
			list = append(list, text(t, part))
		}
	}
	return list
}

func text(t *testing.T, part a2a.Part) string {
	t.Helper()
	p, ok := part.(a2a.TextPart)
	if !ok {
		t.Fatalf("the part is %T, want text", part)
	}
	return p.Text
}

func checkSame(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (- want, + got):\n%s", what, diff)
	}
}

func checkState(t *testing.T, task *a2a.Task, want a2a.TaskState) {
	t.Helper()
	if task.Status.State != want {
		t.Errorf("the state is %s, want %s", task.Status.State, want)
	}
}
