package a2ad

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad/internal/kit"
)

const crashed outcome = "crashed" // in a test

func init() { kit.Execute = executeInTest }

// executeInTest does a run for package a2adtest.
func executeInTest(data json.RawMessage, server kit.Server, agent any, handler bool) (kit.End, error) {
	run, err := decodeRun(data)
	if err != nil {
		return kit.End{}, err
	}
	report := func(_ context.Context, run *runInput, events []json.RawMessage, _ string) (bool, error) {
		return false, errorInTest(server.Report(run.Epoch, events))
	}
	s, ctx := open(context.Background(), run, settings{
		report: report, clock: server, began: time.Now(), logger: slog.New(slog.DiscardHandler), handler: handler,
		eager: true,
	})
	defer s.close()
	end := s.execute(ctx, agent.(AgentFunc))
	result := kit.End{
		Crashed: end.outcome == crashed, Retry: end.outcome == retry, Reason: end.reason, Wrong: end.wrong,
	}
	if end.how != nil {
		result.After = end.how.after
	}
	if stop := stopOf(s.check()); stop != nil {
		result.Line = stop.line
	}
	return result, nil
}

func errorInTest(err error) error {
	var refused kit.Refusal
	var dies kit.Crash
	switch {
	case errors.As(err, &refused):
		return &UsageError{Text: refused.Text, Refused: true}
	case errors.As(err, &dies):
		return &stopped{outcome: crashed, text: err.Error()}
	}
	return err
}
