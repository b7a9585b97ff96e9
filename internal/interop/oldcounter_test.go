package interop

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"
)

// The agent of examples/front-go, made with the SDK of 0.3. This test binary is also its program.

const (
	oldCounterEnv = "INTEROP_OLD_COUNTER" // the URL for its card
	counterPause  = 100 * time.Millisecond
)

type oldCounter struct{}

func serveOldCounter(url string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	card := &a2a.AgentCard{
		Name: "counter", Description: "Counts.", URL: url + "/rpc", PreferredTransport: a2a.TransportProtocolJSONRPC,
		ProtocolVersion: "0.3.0",
		Capabilities:    a2a.AgentCapabilities{Streaming: true},
	}
	mux := http.NewServeMux()
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(oldCounter{})))
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(card))
	slog.Info("ready", "url", "http://"+l.Addr().String())
	return http.Serve(l, mux)
}

func (oldCounter) Execute(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue) error {
	slog.Info("run", "task", req.TaskID)
	if req.StoredTask == nil {
		if err := q.Write(ctx, a2a.NewSubmittedTask(req, req.Message)); err != nil {
			return err
		}
	}
	said, ok := req.Message.Parts[0].(a2a.TextPart)
	if !ok {
		return errors.New("no text")
	}
	n, err := strconv.Atoi(said.Text)
	if err != nil {
		question := a2a.NewStatusUpdateEvent(req, a2a.TaskStateInputRequired,
			a2a.NewMessageForTask(a2a.MessageRoleAgent, req, a2a.TextPart{Text: "How far shall I count?"}))
		question.Final = true
		return q.Write(ctx, question)
	}
	for i := range n {
		select {
		case <-time.After(counterPause):
		case <-ctx.Done():
			return ctx.Err()
		}
		update := a2a.NewArtifactUpdateEvent(req, "numbers", a2a.TextPart{Text: strconv.Itoa(i + 1)})
		update.Append = i > 0
		if err := q.Write(ctx, update); err != nil {
			return err
		}
	}
	done := a2a.NewStatusUpdateEvent(req, a2a.TaskStateCompleted, nil)
	done.Final = true
	return q.Write(ctx, done)
}

func (oldCounter) Cancel(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue) error {
	slog.Info("cancel", "task", req.TaskID)
	end := a2a.NewStatusUpdateEvent(req, a2a.TaskStateCanceled, nil)
	end.Final = true
	return q.Write(ctx, end)
}
