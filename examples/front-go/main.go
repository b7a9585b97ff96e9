// An ordinary agent, written with the official Go SDK. It counts and streams, and keeps its tasks in the
// memory of this process.
package main

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

var (
	listen = flag.String("listen", "127.0.0.1:9100", "address to listen on")
	public = flag.String("url", "", "URL of the agent, if it differs from -listen")
	pause  = flag.Duration("pause", 500*time.Millisecond, "time between two numbers")
)

type counter struct{}

// Execute counts to the number in the message. If there is no number, it asks for one.
func (counter) Execute(ctx context.Context, req *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		slog.Info("run", "task", req.TaskID, "message", req.Message.ID)
		if req.StoredTask == nil && !yield(a2a.NewSubmittedTask(req, req.Message), nil) {
			return
		}
		n, err := strconv.Atoi(strings.TrimSpace(text(req.Message)))
		if err != nil || n < 1 || n > 1000 {
			question := a2a.NewMessageForTask(a2a.MessageRoleAgent, req, a2a.NewTextPart("How far shall I count?"))
			yield(a2a.NewStatusUpdateEvent(req, a2a.TaskStateInputRequired, question), nil)
			return
		}
		for i := range n {
			select {
			case <-time.After(*pause):
			case <-ctx.Done():
				return
			}
			update := a2a.NewArtifactUpdateEvent(req, "numbers", a2a.NewTextPart(strconv.Itoa(i+1)))
			update.Append, update.LastChunk = i > 0, i == n-1
			if !yield(update, nil) {
				return
			}
		}
		yield(a2a.NewStatusUpdateEvent(req, a2a.TaskStateCompleted, nil), nil)
	}
}

func (counter) Cancel(_ context.Context, req *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		slog.Info("cancel", "task", req.TaskID)
		yield(a2a.NewStatusUpdateEvent(req, a2a.TaskStateCanceled, nil), nil)
	}
}

func text(m *a2a.Message) string {
	var texts []string
	for _, part := range m.Parts {
		texts = append(texts, part.Text())
	}
	return strings.Join(texts, " ")
}

func main() {
	flag.Parse()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *public == "" {
		*public = "http://" + l.Addr().String()
	}
	card := &a2a.AgentCard{
		Name: "counter", Description: "Counts to the number in the message.", Version: "1.0.0",
		SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(*public+"/rpc", a2a.TransportProtocolJSONRPC)},
		DefaultInputModes:   []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Capabilities: a2a.AgentCapabilities{Streaming: true},
		Skills:       []a2a.AgentSkill{{ID: "count", Name: "Count", Description: "Counts.", Tags: []string{"numbers"}}},
	}
	mux := http.NewServeMux()
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(counter{})))
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(card))
	slog.Info("ready", "url", "http://"+l.Addr().String())
	slog.Error("stopped", "err", http.Serve(l, mux))
	os.Exit(1)
}
