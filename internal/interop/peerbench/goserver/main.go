// Goserver is an agent server of the official Go SDK of A2A 1.0, with its tasks in memory. `go run ./internal/bench
// -run peers` measures it next to a2ad. It prints its address, and serves until it is killed.
package main

import (
	"context"
	"fmt"
	"iter"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

// agent repeats a message. A message "tokens N R" asks for N tokens at R per second instead. jsserver/server.js and
// internal/bench/tokenagent do the same.
type agent struct{}

func (agent) Execute(ctx context.Context, c *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		if !yield(a2a.NewSubmittedTask(c, c.Message), nil) ||
			!yield(a2a.NewStatusUpdateEvent(c, a2a.TaskStateWorking, nil), nil) {
			return
		}
		var n, rate int
		if _, err := fmt.Sscanf(c.Message.Parts[0].Text(), "tokens %d %d", &n, &rate); err != nil {
			if !yield(a2a.NewArtifactEvent(c, c.Message.Parts...), nil) {
				return
			}
		} else if !tokens(ctx, c, n, rate, yield) {
			return
		}
		yield(a2a.NewStatusUpdateEvent(c, a2a.TaskStateCompleted, nil), nil)
	}
}

// tokens reports n tokens at the given rate per second. A token is the time of its report in microseconds, and its
// number: 20 bytes.
func tokens(ctx context.Context, c *a2asrv.ExecutorContext, n, rate int, yield func(a2a.Event, error) bool) bool {
	start, interval := time.Now(), time.Second/time.Duration(rate)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var id a2a.ArtifactID
	for i := range n {
		timer.Reset(time.Until(start.Add(time.Duration(i+1) * interval)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
		part := a2a.NewTextPart(fmt.Sprintf("%016d:%03d", time.Now().UnixMicro(), i))
		event := a2a.NewArtifactUpdateEvent(c, id, part)
		if i == 0 {
			event = a2a.NewArtifactEvent(c, part)
			id = event.Artifact.ID
		}
		if !yield(event, nil) {
			return false
		}
	}
	return true
}

func (agent) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(func(a2a.Event, error) bool) {}
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "goserver:", err)
		os.Exit(1)
	}
}

func serve() error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return (&http.Server{Handler: handler(), ReadHeaderTimeout: time.Minute}).Serve(l)
}

func handler() http.Handler {
	return a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(agent{},
		a2asrv.WithCapabilityChecks(&a2a.AgentCapabilities{Streaming: true})))
}
