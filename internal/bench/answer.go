package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/wake"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// The shape of the measured task; internal/interop/peerbench has the same.
const (
	answerParts       = 18
	answerArtifacts   = 2
	answerEvents      = 200
	answerSubscribers = 50
)

// answerRig is a server within this process, without sockets and workers, so that only the cost of answers remains.
// Its CPU time is that of the process.
type answerRig struct {
	handler http.Handler
	engine  *engine.Engine
	store   *store.Store
	agent   *a2a.Agent
	caller  db.Caller
}

// answer measures the cost of answering with a task and of streaming one, next to the official Go server in the same
// run.
func (b *bench) answer(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	r, stop, err := b.newAnswerRig(ctx, url)
	if err != nil {
		return err
	}
	defer stop()
	peer, missing := b.peer(ctx)
	big, err := r.bigTask(ctx)
	if err != nil {
		return err
	}
	// One processor for both sides: idle ones spin while they search for work, which would distort the CPU time.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rounds = 15
	get, stream := map[string][]float64{}, map[string][]float64{}
	var query []float64
	size := 0
	for range rounds {
		q, err := r.perGet(func() (int, error) { return r.read(ctx, big) })
		if err != nil {
			return err
		}
		query = append(query, exact(q))
		for _, version := range []string{"0.3", "1.0"} {
			whole, err := r.perGet(func() (int, error) { size, err = r.get(version, big); return size, err })
			if err != nil {
				return err
			}
			get[version] = append(get[version], exact(whole-q))
			one, err := r.follow(ctx, version, 1)
			if err != nil {
				return err
			}
			many, err := r.follow(ctx, version, 1+answerSubscribers)
			if err != nil {
				return err
			}
			stream[version] = append(stream[version], exact(many-one)/answerSubscribers)
		}
	}
	official := "a2a-go v2.4.0 in memory, in the same run: "
	if missing != nil {
		official = "not taken: " + missing.Error()
	}
	b.compareAnswer("GetTask of 34 kB", get["1.0"], peer.Get, 0.1, official, missing == nil,
		fmt.Sprintf("%d B; beyond reading the task, which takes %s ms of CPU here", size, number(median(query))))
	b.compareAnswer(fmt.Sprintf("%d events to one more subscriber", answerEvents), stream["1.0"], peer.Stream, 0.2,
		official, missing == nil,
		fmt.Sprintf("of %d", answerSubscribers))
	b.compareVersions("GetTask", get)
	b.compareVersions("stream", stream)
	return nil
}

// compareVersions adds the ratio of the CPU time of both versions, which were measured in turns.
func (b *bench) compareVersions(name string, took map[string][]float64) {
	var ratios []float64 // of one round each: the machine is faster in some rounds than in others
	for i := range took["1.0"] {
		ratios = append(ratios, took["1.0"][i]/took["0.3"][i])
	}
	b.report.add(figure{Name: name + ": 1.0 / 0.3", Unit: "×", Target: atMost(1.1).onQuiet()}.series(ratios))
}

// compareAnswer adds the CPU time of an operation, and its ratio to the official server's if that was measured.
func (b *bench) compareAnswer(name string, ours []float64, theirs time.Duration, limit float64, official string,
	measured bool, detail string,
) {
	f := figure{Name: name + ": CPU", Unit: "ms", Target: atMost(limit).onQuiet(), Detail: detail, Baseline: official}
	if measured {
		f.Baseline += number(exact(theirs)) + " ms"
	}
	b.report.add(f.series(ours))
	if measured {
		b.report.add(figure{Name: name + ": a2a-go / a2ad", Unit: "×", Value: exact(theirs) / median(ours),
			Target: atLeast(10)})
	}
}

func (b *bench) newAnswerRig(ctx context.Context, url string) (_ *answerRig, stop func(), err error) {
	hub := &notify.Hub{}
	var follower *stream.Follower
	r := &answerRig{agent: &a2a.Agent{Name: "bench", Default: true},
		caller: db.Caller{Tenant: "default", Owner: "anonymous"}}
	r.store, err = store.Open(ctx, store.Config{
		Config: db.Config{URL: url, Replica: "bench", Wake: hub.Wake},
		Committed: func(task a2a.ID, events []a2a.Entry) {
			if !follower.Offer(task, events) {
				hub.Wake(wake.Task(task))
			}
		},
	})
	if err != nil {
		return nil, nil, err
	}
	logger := slog.New(slog.DiscardHandler)
	follower = stream.New(r.store.Tasks, hub, time.Hour, logger)
	if r.engine, err = engine.New(r.store, follower, engine.Config{PageKey: make([]byte, 32)}); err != nil {
		r.store.Close()
		return nil, nil, err
	}
	server, err := rpc.New(rpc.Config{
		Engine: r.engine, Authenticator: auth.Anonymous{}, Agents: []*a2a.Agent{r.agent}, PublicURL: "http://bench",
		V03: v03.Codec{Lenient: true}, V1: v1.Codec{}, Logger: logger,
	})
	if err != nil {
		r.store.Close()
		return nil, nil, err
	}
	r.handler = server.Handler()
	running, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = follower.Run(running) })
	return r, func() { cancel(); wg.Wait(); r.store.Close() }, nil
}

// exact returns milliseconds without rounding.
func exact(d time.Duration) float64 { return d.Seconds() * 1000 }

func answerProse(n int) string {
	const line = "Die Antwort lautet: \"the quick brown fox\" jumps over 13 lazy dogs, naïvely…\n"
	return strings.Repeat(line, n/len(line)+1)[:n]
}

// task submits a message of the given number of parts and claims the task.
func (r *answerRig) task(ctx context.Context, parts int) (*tasks.Lease, error) {
	op := &a2a.SendMessage{Message: a2a.Message{ID: db.NewUID().String(), Role: a2a.RoleUser}}
	for range parts {
		op.Message.Parts = append(op.Message.Parts, a2a.Part{Kind: a2a.PartText, Text: answerProse(500)})
	}
	if _, err := r.engine.Send(ctx, r.caller, r.agent, op); err != nil {
		return nil, err
	}
	leases, err := r.store.Tasks.NewClaimer().Claim(ctx, r.agent.Name, 1, time.Hour, 0)
	if err != nil || len(leases) != 1 {
		return nil, fmt.Errorf("claim: %d leases, %w", len(leases), err)
	}
	return &leases[0], nil
}

func (r *answerRig) bigTask(ctx context.Context) (string, error) {
	l, err := r.task(ctx, answerParts)
	if err != nil {
		return "", err
	}
	var events []a2a.Event
	for i := range answerArtifacts {
		events = append(events, &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: fmt.Sprint("a", i), Parts: []a2a.Part{
			{Kind: a2a.PartText, Text: answerProse(10_000)},
			{Kind: a2a.PartData, Data: a2a.Raw(`{"rows":[` + strings.Repeat(`1.25,`, 499) + `1.25]}`)},
		}}})
	}
	_, err = r.store.Tasks.Append(ctx, l,
		tasks.Batch{Events: append(events, &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}})})
	return l.TaskID.String(), err
}

// perGet returns the CPU time of one call, averaged over many.
func (r *answerRig) perGet(once func() (int, error)) (time.Duration, error) {
	const n = 500
	before := ownCPU()
	for range n {
		if size, err := once(); err != nil || size < 30_000 {
			return 0, fmt.Errorf("an answer of %d bytes: %w", size, err)
		}
	}
	return (ownCPU() - before) / n, nil
}

func (r *answerRig) read(ctx context.Context, id string) (int, error) {
	t, err := r.engine.Get(ctx, r.caller, r.agent, &a2a.GetTask{ID: id})
	if err != nil {
		return 0, err
	}
	return len(t.Artifacts) * 15_000, nil
}

var answerMethods = map[string]struct{ get, subscribe string }{
	"0.3": {"tasks/get", "tasks/resubscribe"}, "1.0": {"GetTask", "SubscribeToTask"},
}

func (r *answerRig) get(version, id string) (int, error) {
	s := &answerSink{header: http.Header{}}
	r.handler.ServeHTTP(s, answerRequest(version, answerMethods[version].get, id))
	if s.bytes < 1000 {
		return 0, fmt.Errorf("%s", s.head)
	}
	return s.bytes, nil
}

// follow returns the CPU time of a task with answerEvents events while n subscribers follow it.
func (r *answerRig) follow(ctx context.Context, version string, n int) (time.Duration, error) {
	l, err := r.task(ctx, 1)
	if err != nil {
		return 0, err
	}
	var begun, ended sync.WaitGroup
	begun.Add(n)
	sinks := make([]*answerSink, n)
	for i := range sinks {
		sinks[i] = &answerSink{header: http.Header{}, begun: begun.Done}
		ended.Go(func() {
			r.handler.ServeHTTP(sinks[i], answerRequest(version, answerMethods[version].subscribe, l.TaskID.String()))
		})
	}
	begun.Wait()
	before := ownCPU()
	for i := 0; i < answerEvents; i += 50 { // in batches, as a worker appends them
		var events []a2a.Event
		for k := range 50 {
			events = append(events, &a2a.ArtifactUpdate{
				Artifact: a2a.Artifact{ID: "a", Parts: []a2a.Part{{Kind: a2a.PartText, Text: answerProse(60)}}},
				Append:   i+k > 0, LastChunk: i+k == answerEvents-1,
			})
		}
		if _, err := r.store.Tasks.Append(ctx, l, tasks.Batch{Events: events}); err != nil {
			return 0, err
		}
	}
	completed := &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}}
	if _, err := r.store.Tasks.Append(ctx, l, tasks.Batch{Events: []a2a.Event{completed}}); err != nil {
		return 0, err
	}
	ended.Wait()
	used := ownCPU() - before
	for _, s := range sinks {
		if s.bytes < answerEvents*60 {
			return 0, fmt.Errorf("a subscriber got %d bytes", s.bytes)
		}
	}
	return used, nil
}

func answerRequest(version, method, id string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"id":"`+id+`"}}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("A2A-Version", version)
	return r
}

// answerSink receives an answer and signals its start.
type answerSink struct {
	header http.Header
	begun  func()
	head   []byte // start of the answer
	bytes  int
}

func (s *answerSink) Header() http.Header                { return s.header }
func (s *answerSink) WriteHeader(int)                    {}
func (s *answerSink) Flush()                             {}
func (s *answerSink) SetReadDeadline(_ time.Time) error  { return nil }
func (s *answerSink) SetWriteDeadline(_ time.Time) error { return nil }
func (s *answerSink) Write(p []byte) (int, error) {
	if s.bytes == 0 && s.begun != nil {
		s.begun()
	}
	if s.head == nil {
		s.head = bytes.Clone(p[:min(len(p), 1000)])
	}
	s.bytes += len(p)
	return len(p), nil
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peerFigures are the figures of the official Go server.
type peerFigures struct {
	Get    time.Duration `json:"get_ns"`
	Stream time.Duration `json:"stream_ns"`
}

// peer measures it in a process and a module of its own, because a2ad does not depend on it.
func (b *bench) peer(ctx context.Context) (f peerFigures, err error) {
	binary := filepath.Join(b.dir, "peerbench")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./peerbench")
	build.Dir = filepath.Join(b.root, "internal", "interop")
	if out, err := build.CombinedOutput(); err != nil {
		return f, fmt.Errorf("the official server could not be built: %s", lastLine(out))
	}
	run := exec.CommandContext(ctx, binary)
	run.Env = append(os.Environ(), "GOMAXPROCS=1")
	out, err := run.Output()
	if err != nil {
		return f, fmt.Errorf("the official server: %w", err)
	}
	return f, json.Unmarshal(out, &f)
}
