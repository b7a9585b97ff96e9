package workerapi

import (
	"context"
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/executor/vocab"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// serveSteps answers with a page of the steps that earlier runs of a task have recorded.
func (a *API) serveSteps(ctx context.Context, r *request) ([]byte, error) {
	after := 0
	if text := r.URL.Query().Get("after"); text != "" {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return nil, a2a.Errorf(a2a.CodeInvalidRequest, "after must be the number of a step")
		}
		after = int(n)
	}
	g, err := a.remoteLease(r, "")
	if err != nil {
		return nil, err
	}
	g.Agents = a.allowed(&r.principal)
	var b []byte
	err = a.withLease(ctx, g, true, func(h *tasks.RemoteRun) (bool, error) {
		page := tasks.StepsFirst
		if err := r.mem.Grow(ctx, 3*min(h.StepBytes, page.Bytes)); err != nil {
			return false, err
		}
		page.After = after
		list, err := a.store.Steps(ctx, h.TaskID, page)
		if err != nil {
			return false, err
		}
		b = strconv.AppendInt([]byte(`{"stepCount":`), int64(h.Steps), 10)
		b = append(vocab.AppendSteps(append(b, `,"steps":`...), list), '}')
		return true, nil
	})
	return b, err
}

// serveSignal stores a signal for a task.
func (a *API) serveSignal(ctx context.Context, r *request) ([]byte, error) {
	task, err := a2a.ParseID(r.PathValue("task"))
	if err != nil {
		return nil, notFound("task not found")
	}
	var f fields
	s := tasks.Signal{
		Task: task, Name: f.name("the name of the signal", quoted(r.PathValue("name"))),
		Key: r.Header.Get("Idempotency-Key"), Sender: r.principal.Tenant + "/" + r.principal.Owner,
		May: r.principal.MayUse,
	}
	if s.Key != "" {
		s.Key = f.name("Idempotency-Key", quoted(s.Key))
	}
	f.each(r.body, func(key string, v []byte) bool {
		if key == "value" {
			s.Value = v
		}
		return key == "value"
	})
	if f.err == nil && len(s.Value) > attempt.MaxResult {
		f.fail("value", "is larger than %d bytes", attempt.MaxResult)
	}
	if f.err != nil {
		return nil, f.err
	}
	if err := a.store.SendSignal(ctx, s); err != nil {
		if a2a.CodeOf(err) == a2a.CodeTaskNotFound {
			return nil, notFound("task not found")
		}
		return nil, err
	}
	return []byte("{}"), nil
}

func quoted(s string) []byte { return strconv.AppendQuote(nil, s) }
