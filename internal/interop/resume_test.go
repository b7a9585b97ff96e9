package interop

import (
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/a2a"
)

// quick are settings with which another server, or a restarted one, takes over at once from a killed one.
var quick = []string{
	"--lease-ttl", "1s", "--rescue-interval", "50ms", "--poll-interval", "50ms", "--retry-backoff-base", "10ms",
	"--drain-timeout", "2s",
}

func TestResubscribeAfterACut(t *testing.T) {
	t.Parallel()
	at, g := newAddress(t), newGate(t)
	p := dialAt(t, at.url(), scriptAgent)
	s := p.stream(script(chunks("a", 10), g.op(), chunks("b", 20)))
	s.untilChunk("a", true)
	id := s.seen[0].TaskInfo().TaskID
	at.cable.cut()
	if err := s.failure(); err == nil {
		t.Fatal("a cut stream must not look like one that has ended")
	}
	back := p.resubscribe(id)
	checkSame(t, "what the client comes back to", back.first(), fold(t, s.seen))
	g.open()
	checkWhole(t, p, back.rest())
}

func TestResumeAfterTheLastEventRepeatsNothing(t *testing.T) {
	t.Parallel()
	at, g := newAddress(t), newGate(t)
	h := httpClient(t)
	ids := &eventIDs{next: h.Transport}
	h.Transport = ids
	s := dialWith(t, h, at.url(), scriptAgent).stream(script(chunks("a", 10), g.op(), chunks("b", 20)))
	// chunks that were sent and not read may be lost with the connection: both outcomes must work
	s.untilChunk("a", false)
	at.cable.cut()
	_ = s.failure()
	task := s.seen[0].TaskInfo().TaskID

	p := dialAt(t, at.url(), scriptAgent, headers(map[string]string{"Last-Event-ID": ids.of(len(s.seen))}))
	back := p.resubscribe(task)
	g.open()
	checkWhole(t, p, slices.Concat(s.seen, back.rest()))
}

func TestResubscribeAfterAKill(t *testing.T) {
	t.Parallel()
	checkResumedAfterKill(t, newAddress(t, quick...))
}

// As in the README: `a2ad dev` with the PostgreSQL that it runs itself, which stops and starts with it.
func TestResubscribeAfterAKillOfServerAndDatabase(t *testing.T) {
	t.Parallel()
	checkResumedAfterKill(t,
		newAddressWith(t, append([]string{"dev", "--data-dir", filepath.Join(tests.dir, "pg-to-kill")}, quick...)...))
}

func checkResumedAfterKill(t *testing.T, at *address) {
	t.Helper()
	p, g := dialAt(t, at.url(), scriptAgent), newGate(t)
	s := p.stream(script(chunks("a", 10), g.op(), chunks("b", 20)))
	s.untilChunk("a", true)
	id := s.seen[0].TaskInfo().TaskID
	g.waitReached(t)
	at.kill()
	if err := s.failure(); err == nil {
		t.Fatal("the stream of a killed server must not look like one that has ended")
	}
	at.start(t)
	back := p.resubscribe(id)
	checkSame(t, "what the client comes back to", texts(t, back.first(), "a"), numbered("a", 10))
	g.open()
	checkWhole(t, p, back.rest())
}

// The killed server stays down. A client that watches the task at another one sees only a second attempt.
func TestAnotherReplicaFinishesTheTaskOfAKilledOne(t *testing.T) {
	t.Parallel()
	database, g := newDatabase(t), newGate(t)
	one := newAddressOn(t, database, quick...)
	s := dialAt(t, one.url(), scriptAgent).stream(script(chunks("a", 10), g.op(), chunks("b", 20)))
	id := s.first().ID
	g.waitReached(t) // the first server has the task, because the second one starts now
	two := newAddressOn(t, database, quick...)
	p := dialAt(t, two.url(), scriptAgent)
	watched := p.resubscribe(id)
	watched.first()
	one.kill()
	g.open()
	stream := watched.rest()
	checkWhole(t, p, stream)
	attempts := 0
	for _, event := range stream {
		if u, ok := event.(*a2a.TaskStatusUpdateEvent); ok && u.Metadata["a2ad/attempt"] != nil {
			attempts++
		}
	}
	if attempts != 1 {
		t.Errorf("%d further attempts are announced, want 1: %s", attempts, sketch(stream))
	}
}

func TestResubscribeAfterAnOrderlyRestart(t *testing.T) {
	t.Parallel()
	at, g := newAddress(t, quick...), newGate(t)
	p := dialAt(t, at.url(), scriptAgent)
	s := p.stream(script(chunks("a", 10), g.op(), chunks("b", 20)))
	s.untilChunk("a", true)
	id := s.seen[0].TaskInfo().TaskID
	at.stop(t)
	// The stream ends regularly but without a last event, which tells a client to reconnect.
	for _, event := range s.rest() {
		if u, ok := event.(*a2a.TaskStatusUpdateEvent); ok && u.Final {
			t.Errorf("a stream that the server had to end says final: %s", sketch(s.seen))
		}
	}
	at.start(t)
	back := p.resubscribe(id)
	back.first()
	g.open()
	checkWhole(t, p, back.rest())
}

// A blocking send cut off by a kill leaves its outcome unknown. With the key the client finds its task.
func TestSendCutByAKillIsRepeatedWithItsKey(t *testing.T) {
	t.Parallel()
	at, g := newAddress(t, quick...), newGate(t)
	p := dialAt(t, at.url(), scriptAgent, headers(map[string]string{"Idempotency-Key": a2a.NewMessageID()}))
	m := script(chunks("a", 10), g.op(), chunks("b", 20))
	m.ContextID = a2a.NewContextID()
	params := &a2a.MessageSendParams{Message: m}
	failed := make(chan error, 1)
	var work sync.WaitGroup
	work.Go(func() {
		_, err := p.SendMessage(testContext(t), params)
		failed <- err
	})
	defer work.Wait()
	g.waitReached(t)
	at.kill()
	if err := <-failed; err == nil {
		t.Fatal("the send was answered by a killed server")
	}
	at.start(t)
	g.open()
	result, err := p.SendMessage(testContext(t), params)
	if err != nil {
		t.Fatal(err)
	}
	task := p.task(result)
	checkState(t, task, a2a.TaskStateCompleted)
	checkSame(t, "chunks", texts(t, task, "b"), numbered("b", 20))
	if n := p.list(&a2a.ListTasksRequest{ContextID: m.ContextID}).TotalSize; n != 1 {
		t.Errorf("the message has made %d tasks, want 1", n)
	}
}

// checkWhole compares what a client has of the script with the artifacts a and b with what the server has.
func checkWhole(t *testing.T, p *peer, stream []a2a.Event) {
	t.Helper()
	checkStream(t, stream)
	folded := fold(t, stream)
	checkState(t, folded, a2a.TaskStateCompleted)
	checkSame(t, "the events, added up, and tasks/get", folded, p.get(folded.ID))
	checkSame(t, "chunks of a", texts(t, folded, "a"), numbered("a", 10))
	checkSame(t, "chunks of b", texts(t, folded, "b"), numbered("b", 20))
}

// eventIDs reads the ids of the events that pass through it, because the client does not expose them.
type eventIDs struct {
	next http.RoundTripper

	mu  sync.Mutex
	ids []string // guarded by mu
}

func (e *eventIDs) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := e.next.RoundTrip(r)
	if err == nil && resp.Header.Get("Content-Type") == "text/event-stream" {
		resp.Body = &idReader{ReadCloser: resp.Body, ids: e}
	}
	return resp, err
}

// of returns the id of the n-th event. The client may not have processed all that passed.
func (e *eventIDs) of(n int) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ids[n-1]
}

type idReader struct {
	io.ReadCloser
	ids  *eventIDs
	line []byte // the part of the line read so far
}

func (r *idReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	for _, b := range p[:n] {
		if b != '\n' {
			r.line = append(r.line, b)
			continue
		}
		if id, ok := strings.CutPrefix(string(r.line), "id: "); ok {
			r.ids.add(id)
		}
		r.line = r.line[:0]
	}
	return n, err
}

func (e *eventIDs) add(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ids = append(e.ids, id)
}
