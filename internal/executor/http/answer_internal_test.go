package http

import (
	"context"
	"errors"
	"io"
	"log/slog"
	nethttp "net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
)

// The idle timeout is about the agent. A caller that is slow with an event must not end the run.
func TestSlowCallerDoesNotEndTheRun(t *testing.T) {
	t.Parallel()
	const body = `{"artifactUpdate":{"artifact":{"artifactId":"a","parts":[{"text":"x"}]}}}` + "\n" +
		`{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}` + "\n"
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Config{URL: "http://agent.example", IdleTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, abort := context.WithCancelCause(t.Context())
		defer abort(nil)
		events := 0
		x := &exchange{
			e: e, run: &executor.Run{}, abort: abort, last: func() {}, log: slog.New(slog.DiscardHandler),
			emit: func(a2a.Event) error {
				events++
				time.Sleep(time.Minute)
				return context.Cause(ctx)
			},
		}
		resp := &nethttp.Response{Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
		err = newAnswer(x, resp).read(ctx, nethttp.Header{"Content-Type": {"application/x-ndjson"}})
		if !errors.Is(err, errTurnEnded) || events != 2 {
			t.Errorf("%v after %d events, want the end of the turn after 2", err, events)
		}
	})
}
