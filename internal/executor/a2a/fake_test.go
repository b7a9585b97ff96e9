package a2a_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/jsonrpc"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// fake is an upstream in memory, in either generation, that a test controls.
type fake struct {
	t   *testing.T
	url string

	// Set before use.
	codec     wire.Codec
	streaming bool
	bare      bool // resumed streams do not begin with the Task, as in some SDKs
	blind     bool // the method that resumes does not find running tasks
	reply     *a2a.Message
	program   [][]a2a.Event // the events after the n-th message of a task
	pace      bool          // each event waits until the test allows it
	raw       func(method string, w http.ResponseWriter, r *http.Request) bool
	card      func(base string) string

	mu       sync.Mutex
	changed  chan struct{}
	tasks    map[string]*fakeTask
	order    []string
	messages []a2a.Message // received from the executor
	metadata []string      // of the requests that had metadata
	cancels  int
	cards    int
	gets     int
	headers  []http.Header
	allowed  int // with pace: the number of allowed events, of all tasks
	given    int
	cutAt    int // streams are cut after this many items; 0: never
	down     bool
}

type fakeTask struct {
	id      a2a.ID
	context string
	log     []a2a.Event
	queue   []a2a.Event // not yet emitted
	history []a2a.Message
	turn    int
	gone    bool // its streams must end
}

func newFake(t *testing.T, generation string) *fake {
	t.Helper()
	f := &fake{t: t, streaming: true, tasks: map[string]*fakeTask{}, changed: make(chan struct{}),
		codec: wire.Codec(v1.Codec{})}
	if generation == "0.3" {
		f.codec = v03.Codec{}
	}
	srv := httptest.NewServer(f)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	f.url = srv.URL
	return f
}

func (f *fake) cardURL() string { return f.url + "/.well-known/agent-card.json" }

func (f *fake) locked(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	f.wake()
}

func (f *fake) wake() { // the caller holds mu
	close(f.changed)
	f.changed = make(chan struct{})
}

// allow permits n more events.
func (f *fake) allow(n int) {
	f.locked(func() {
		f.allowed += n
		f.advance()
	})
}

func (f *fake) advance() { // the caller holds mu
	for _, id := range f.order {
		task := f.tasks[id]
		for task != nil && len(task.queue) > 0 && (!f.pace || f.given < f.allowed) {
			task.log = append(task.log, task.queue[0])
			task.queue = task.queue[1:]
			f.given++
		}
	}
}

// forget loses all tasks, like a process without a store that restarts.
func (f *fake) forget() {
	f.locked(func() {
		for _, task := range f.tasks {
			task.gone = true
		}
		f.tasks, f.order = map[string]*fakeTask{}, nil
	})
}

func (task *fakeTask) snapshot(n int) *a2a.Task {
	t := &a2a.Task{ID: task.id, ContextID: task.context, Status: a2a.Status{State: a2a.StateSubmitted},
		History: slices.Clone(task.history)}
	for _, e := range task.log[:n] {
		switch e := e.(type) {
		case *a2a.StatusUpdate:
			if t.Status.Message != nil {
				t.History = append(t.History, *t.Status.Message)
			}
			t.Status = e.Status
		case *a2a.ArtifactUpdate:
			t.Artifacts = a2a.Fold(t.Artifacts, e)
		}
	}
	return t
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	down := f.down
	f.headers = append(f.headers, r.Header.Clone())
	f.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler)
	}
	if r.Method == http.MethodGet {
		f.locked(func() { f.cards++ })
		card := fmt.Sprintf(`{"name":"fake","url":%q,"protocolVersion":"0.3.0","capabilities":{"streaming":%v}}`,
			f.url+"/rpc", f.streaming)
		if f.codec.Version() == "1.0" {
			card = fmt.Sprintf(`{"name":"fake","supportedInterfaces":[{"url":%q,"protocolBinding":"JSONRPC",`+
				`"protocolVersion":"1.0","tenant":"north"}],`+
				`"capabilities":{"streaming":%v}}`, f.url+"/rpc", f.streaming)
		}
		if f.card != nil {
			card = f.card(f.url)
		}
		_, _ = io.WriteString(w, card)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	req, fault := jsonrpc.Parse(body, 64)
	if fault != nil {
		f.t.Errorf("the upstream gets %s: %v", body, fault)
		return
	}
	if f.raw != nil && f.raw(req.Method, w, r) {
		return
	}
	op, err := f.codec.Decode(req.Method, req.Params)
	if err != nil {
		f.t.Errorf("the upstream gets %s: %v", body, err)
		return
	}
	f.serve(w, r, req.ID, op)
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request, id []byte, op a2a.Op) {
	switch op := op.(type) {
	case *a2a.SendMessage:
		task, from := f.send(op)
		switch {
		case task == nil && f.reply != nil && op.Stream:
			f.stream(w)([]byte("data: " + string(jsonrpc.AppendResult(nil, id, f.codec.AppendReply(nil, f.reply))) +
				"\n\n"))
		case task == nil && f.reply != nil:
			f.answer(w, jsonrpc.AppendResult(nil, id, f.codec.AppendReply(nil, f.reply)))
		case task == nil:
			f.refuse(w, id, a2a.ErrTaskNotFound)
		case op.Stream:
			f.follow(w, r, id, task, from, true)
		default:
			f.locked(func() {
				f.answer(w, jsonrpc.AppendResult(nil, id, f.codec.AppendSent(nil, task.snapshot(len(task.log)))))
			})
		}
	case *a2a.Subscribe:
		task := f.find(op.ID)
		if task == nil || f.blind {
			f.refuse(w, id, a2a.ErrTaskNotFound)
			return
		}
		var n int
		f.locked(func() { n = len(task.log) })
		f.follow(w, r, id, task, n, !f.bare)
	case *a2a.GetTask:
		f.locked(func() { f.gets++ })
		task := f.find(op.ID)
		if task == nil {
			f.refuse(w, id, a2a.ErrTaskNotFound)
			return
		}
		f.locked(func() {
			f.answer(w, jsonrpc.AppendResult(nil, id, f.codec.AppendTask(nil, task.snapshot(len(task.log)))))
		})
	case *a2a.CancelTask:
		task := f.find(op.ID)
		f.locked(func() {
			f.cancels++
			if op.Metadata != nil {
				f.metadata = append(f.metadata, string(op.Metadata))
			}
			switch {
			case task == nil:
				f.refuse(w, id, a2a.ErrTaskNotFound)
			case len(task.log) > 0 && task.snapshot(len(task.log)).Status.State.Terminal():
				f.refuse(w, id, a2a.Errorf(a2a.CodeTaskNotCancelable, "it has ended"))
			default:
				task.queue = nil
				task.log = append(task.log, &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCanceled}})
				f.answer(w, jsonrpc.AppendResult(nil, id, f.codec.AppendTask(nil, task.snapshot(len(task.log)))))
			}
		})
	}
}

func (f *fake) find(id string) *fakeTask {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tasks[id]
}

// send receives a message. from is the length of the task's log before it.
func (f *fake) send(op *a2a.SendMessage) (task *fakeTask, from int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.messages = append(f.messages, op.Message)
	if op.Metadata != nil {
		f.metadata = append(f.metadata, string(op.Metadata))
	}
	if f.reply != nil {
		return nil, 0
	}
	if op.Message.TaskID != "" {
		if task = f.tasks[op.Message.TaskID]; task == nil {
			return nil, 0
		}
		from = len(task.log)
	} else {
		task = &fakeTask{context: op.Message.ContextID}
		_, _ = rand.Read(task.id[:])
		f.tasks[task.id.String()] = task
		f.order = append(f.order, task.id.String())
	}
	m := op.Message
	m.TaskID, m.ContextID = task.id.String(), task.context
	task.history = append(task.history, m)
	task.queue = append(task.queue, f.program[min(task.turn, len(f.program)-1)]...)
	task.turn++
	f.advance()
	f.wake()
	return task, from
}

func (f *fake) answer(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func (f *fake) refuse(w http.ResponseWriter, id []byte, err *a2a.Error) {
	f.answer(w, jsonrpc.AppendError(nil, id, f.codec.AppendError(nil, err, "")))
}

func (f *fake) stream(w http.ResponseWriter) func([]byte) {
	w.Header().Set("Content-Type", "text/event-stream")
	return func(b []byte) {
		_, _ = w.Write(b)
		w.(http.Flusher).Flush()
	}
}

// follow streams a task from event n on, after an optional snapshot, until its turn ends.
func (f *fake) follow(w http.ResponseWriter, r *http.Request, id []byte, task *fakeTask, n int, first bool) {
	write := f.stream(w)
	items := 0
	item := func(value []byte) bool {
		write([]byte(": ping\n\ndata: " + string(jsonrpc.AppendResult(nil, id, value)) + "\n\n"))
		items++
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.cutAt == 0 || items < f.cutAt
	}
	if first {
		f.mu.Lock()
		value := f.codec.AppendSnapshot(nil, task.snapshot(n))
		f.mu.Unlock()
		if !item(value) {
			panic(http.ErrAbortHandler)
		}
	} else {
		write([]byte(": ok\n\n"))
	}
	for seq := n; ; seq++ {
		var event a2a.Event
		for event == nil {
			f.mu.Lock()
			changed, down := f.changed, f.down || task.gone
			if len(task.log) > seq {
				event = task.log[seq]
			}
			f.mu.Unlock()
			if down {
				panic(http.ErrAbortHandler)
			}
			if event != nil {
				break
			}
			select {
			case <-changed:
			case <-r.Context().Done():
				return
			}
		}
		u, ok := event.(*a2a.StatusUpdate)
		last := ok && u.Status.State.EndsTurn()
		entry := &a2a.Entry{TaskID: task.id, ContextID: task.context, Seq: int64(seq + 1), Event: event}
		if !item(f.codec.AppendEvent(nil, entry, last)) {
			panic(http.ErrAbortHandler)
		}
		if last {
			return
		}
	}
}

func (f *fake) count() (messages, cancels int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.messages), f.cancels
}

// The events of programs.

var clock = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func status(state a2a.State, texts ...string) a2a.Event {
	u := &a2a.StatusUpdate{Status: a2a.Status{State: state, Time: clock}}
	if len(texts) > 0 {
		u.Status.Message = &a2a.Message{ID: "m-" + strings.Join(texts, "-"), Role: a2a.RoleAgent,
			Parts: textParts(texts...)}
	}
	return u
}

func textParts(texts ...string) (parts []a2a.Part) {
	for _, s := range texts {
		parts = append(parts, a2a.Part{Kind: a2a.PartText, Text: s})
	}
	return parts
}

func chunk(id string, k int, texts ...string) a2a.Event {
	return &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: id, Parts: textParts(texts...)}, Append: k > 0}
}

func chunksOf(id string, n int) (list []a2a.Event) {
	for k := range n {
		list = append(list, chunk(id, k, fmt.Sprint(k)))
	}
	return list
}
