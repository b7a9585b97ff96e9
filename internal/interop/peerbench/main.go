// Peerbench measures the cost of answers in the official Go server of A2A 1.0, with its tasks in memory. `go run
// ./internal/bench -run answer` runs it next to a2ad. It prints one JSON object with nanoseconds of CPU time.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

// The shape of the measured task; internal/bench/answer.go has the same.
const (
	messageParts = 18
	artifacts    = 2
	events       = 200
	subscribers  = 50
	rounds       = 5
	gets         = 500
)

func prose(n int) string {
	const line = "Die Antwort lautet: \"the quick brown fox\" jumps over 13 lazy dogs, naïvely…\n"
	return strings.Repeat(line, n/len(line)+1)[:n]
}

// agent creates a task of 34 kB for one kind of message. For the other kind it reports answerEvents events once its
// gate is open.
type agent struct{ gate chan struct{} }

func (a *agent) Execute(ctx context.Context, c *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		if !yield(a2a.NewSubmittedTask(c, c.Message), nil) ||
			!yield(a2a.NewStatusUpdateEvent(c, a2a.TaskStateWorking, nil), nil) {
			return
		}
		if len(c.Message.Parts) == messageParts {
			rows := map[string]any{"rows": slices.Repeat([]any{1.25}, 500)}
			for range artifacts {
				if !yield(a2a.NewArtifactEvent(c, a2a.NewTextPart(prose(10_000)), a2a.NewDataPart(rows)), nil) {
					return
				}
			}
		} else {
			select {
			case <-a.gate:
			case <-ctx.Done():
				return
			}
			first := a2a.NewArtifactEvent(c, a2a.NewTextPart(prose(60)))
			if !yield(first, nil) {
				return
			}
			for range events - 1 {
				if !yield(a2a.NewArtifactUpdateEvent(c, first.Artifact.ID, a2a.NewTextPart(prose(60))), nil) {
					return
				}
			}
		}
		yield(a2a.NewStatusUpdateEvent(c, a2a.TaskStateCompleted, nil), nil)
	}
}

func (*agent) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(func(a2a.Event, error) bool) {}
}

// sink receives an answer and signals its start.
type sink struct {
	header http.Header
	begun  func()
	bytes  int
}

func (s *sink) Header() http.Header { return s.header }
func (s *sink) WriteHeader(int)     {}
func (s *sink) Flush()              {}
func (s *sink) Write(p []byte) (int, error) {
	if s.bytes == 0 && s.begun != nil {
		s.begun()
	}
	s.bytes += len(p)
	return len(p), nil
}

func request(method, params string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("A2A-Version", "1.0")
	return r
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(d []time.Duration) int64 { slices.Sort(d); return int64(d[len(d)/2]) }

func main() {
	if err := measure(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "peerbench:", err)
		os.Exit(1)
	}
}

func measure(w io.Writer) error {
	a := &agent{}
	h := a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(a,
		a2asrv.WithCapabilityChecks(&a2a.AgentCapabilities{Streaming: true})))
	part, err := json.Marshal(prose(500))
	if err != nil {
		return err
	}
	big, err := create(h, strings.Repeat(`{"text":`+string(part)+`},`, messageParts-1)+`{"text":`+string(part)+`}`,
		false)
	if err != nil {
		return err
	}
	var get []time.Duration
	size := 0
	for range rounds {
		began := cpu()
		for range gets {
			s := &sink{header: http.Header{}}
			h.ServeHTTP(s, request("GetTask", `{"id":"`+big+`"}`))
			size = s.bytes
		}
		get = append(get, (cpu()-began)/gets)
	}
	var stream []time.Duration
	for range rounds {
		one, err := follow(h, a, 1)
		if err != nil {
			return err
		}
		many, err := follow(h, a, 1+subscribers)
		if err != nil {
			return err
		}
		stream = append(stream, (many-one)/subscribers)
	}
	return json.NewEncoder(w).Encode(map[string]int64{"get_ns": median(get), "get_bytes": int64(size),
		"stream_ns": median(stream)})
}

// create sends a message and returns the id of its task.
func create(h http.Handler, parts string, now bool) (string, error) {
	r := httptest.NewRecorder()
	h.ServeHTTP(r,
		request("SendMessage",
			fmt.Sprintf(`{"message":{"messageId":"m%d","role":"ROLE_USER","parts":[%s]},`+
				`"configuration":{"returnImmediately":%t}}`, time.Now().UnixNano(), parts, now)))
	var answer struct {
		Result struct{ Task struct{ ID string } }
	}
	if err := json.Unmarshal(r.Body.Bytes(), &answer); err != nil || answer.Result.Task.ID == "" {
		return "", fmt.Errorf("SendMessage: %s, %w", r.Body, err)
	}
	return answer.Result.Task.ID, nil
}

// follow returns the cost of streaming a task to n subscribers.
func follow(h http.Handler, a *agent, n int) (time.Duration, error) {
	a.gate = make(chan struct{})
	id, err := create(h, `{"text":"stream"}`, true)
	if err != nil {
		return 0, err
	}
	var begun, ended sync.WaitGroup
	begun.Add(n)
	sinks := make([]*sink, n)
	for i := range sinks {
		sinks[i] = &sink{header: http.Header{}, begun: begun.Done}
		ended.Go(func() { h.ServeHTTP(sinks[i], request("SubscribeToTask", `{"id":"`+id+`"}`)) })
	}
	begun.Wait()
	before := cpu()
	close(a.gate)
	ended.Wait()
	used := cpu() - before
	for _, s := range sinks {
		if s.bytes < events*60 {
			return 0, fmt.Errorf("a subscriber got %d bytes", s.bytes)
		}
	}
	return used, nil
}
