package interop

import (
	"bytes"
	"context"
	"iter"
	"net/http"
	"net/http/httptest"
	"testing"

	old "github.com/a2aproject/a2a-go/a2a"
	oldsrv "github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"
	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

// echo10 is an agent of the official server of 1.0: it works, says something and ends; or it asks, or replies with
// only a message.
type echo10 struct{}

func (echo10) Execute(_ context.Context, c *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		said := c.Message.Parts[0].Text()
		if said == "reply" {
			yield(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("a reply")), nil)
			return
		}
		end := a2a.TaskStateCompleted
		if said == "ask" {
			end = a2a.TaskStateInputRequired
		}
		if c.StoredTask == nil && !yield(a2a.NewSubmittedTask(c, c.Message), nil) {
			return
		}
		if !yield(a2a.NewStatusUpdateEvent(c, a2a.TaskStateWorking, nil), nil) ||
			!yield(a2a.NewArtifactEvent(c, a2a.NewTextPart("you said "+said)), nil) {
			return
		}
		yield(a2a.NewStatusUpdateEvent(c, end, a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("that is all"))),
			nil)
	}
}

func (echo10) Cancel(_ context.Context, c *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(c, a2a.TaskStateCanceled, nil), nil)
	}
}

// echo03 is the same on the official server of 0.3.
type echo03 struct{}

func (echo03) Execute(ctx context.Context, c *oldsrv.RequestContext, q eventqueue.Queue) error {
	said := c.Message.Parts[0].(old.TextPart).Text
	if said == "reply" {
		return q.Write(ctx, old.NewMessage(old.MessageRoleAgent, old.TextPart{Text: "a reply"}))
	}
	end := old.NewStatusUpdateEvent(c, old.TaskStateCompleted,
		old.NewMessage(old.MessageRoleAgent, old.TextPart{Text: "that is all"}))
	if said == "ask" {
		end.Status.State = old.TaskStateInputRequired
	}
	end.Final = true
	artifact := old.NewArtifactEvent(c, old.TextPart{Text: "you said " + said})
	events := []old.Event{old.NewStatusUpdateEvent(c, old.TaskStateWorking, nil), artifact, end}
	if c.StoredTask == nil {
		events = append([]old.Event{old.NewSubmittedTask(c, c.Message)}, events...)
	}
	for _, e := range events {
		if err := q.Write(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func (echo03) Cancel(ctx context.Context, c *oldsrv.RequestContext, q eventqueue.Queue) error {
	return q.Write(ctx, old.NewStatusUpdateEvent(c, old.TaskStateCanceled, nil))
}

// official serves an agent of either official server, with its card.
func official(t *testing.T, version string) string {
	t.Helper()
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	if version == "1.0" {
		mux.Handle("/invoke",
			a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(echo10{},
				a2asrv.WithCapabilityChecks(&a2a.AgentCapabilities{Streaming: true}))))
		mux.Handle("/.well-known/agent-card.json", a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{
			Name: "echo", Version: "1", Capabilities: a2a.AgentCapabilities{Streaming: true},
			SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(srv.URL+"/invoke",
				a2a.TransportProtocolJSONRPC)},
		}))
		return srv.URL
	}
	mux.Handle("/invoke", oldsrv.NewJSONRPCHandler(oldsrv.NewHandler(echo03{})))
	mux.Handle("/.well-known/agent-card.json", oldsrv.NewStaticAgentCardHandler(&old.AgentCard{
		Name: "echo", Version: "1", URL: srv.URL + "/invoke", PreferredTransport: old.TransportProtocolJSONRPC,
		ProtocolVersion: "0.3.0",
		Capabilities:    old.AgentCapabilities{Streaming: true},
	}))
	return srv.URL
}

// `a2ad send` shows the same for either version that it finds in the card.
func TestSendCommandWorksWithOfficialServers(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.3", "1.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			base := official(t, version)
			for _, tc := range []struct {
				args []string
				want string // on stdout
				code int
			}{
				{[]string{"hello"}, "you said hello\nthat is all\n", 0},
				{[]string{"--no-stream", "hello"}, "you said hello\nthat is all\n", 0},
				{[]string{"ask"}, "you said ask\nthat is all\n", 4},
				{[]string{"reply"}, "a reply\n", 0},
				{[]string{"--no-stream", "reply"}, "a reply\n", 0},
				{[]string{"--resume", "0199a1b2-0000-7000-8000-000000000000"}, "", 1},
			} {
				cmd := command(testContext(t), append([]string{"send", "--url", base}, tc.args...)...)
				var stdout, stderr bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				err := cmd.Run()
				if stdout.String() != tc.want || cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != tc.code {
					t.Errorf("a2ad send %v: %v, stdout %q, want %q and exit code %d\n%s", tc.args, err, &stdout,
						tc.want, tc.code, &stderr)
				}
			}
		})
	}
}
