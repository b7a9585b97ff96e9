package worker_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
)

// trouble makes PostgreSQL refuse the events of agents with a SQLSTATE, until end is called.
func (f *fixture) trouble(code string) (end func()) {
	f.t.Helper()
	f.exec(
		fmt.Sprintf(
			`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
				BEGIN RAISE EXCEPTION 'planted' USING ERRCODE = '%s'; END $$`,
			code,
		),
	)
	f.exec(
		`CREATE TRIGGER refuse BEFORE INSERT ON a2a.task_events 
			FOR EACH ROW WHEN (NEW.kind <> 1) EXECUTE FUNCTION public.refuse()`,
	)
	return func() { f.exec(`DROP TRIGGER refuse ON a2a.task_events`) }
}

var (
	released = []string{"released", "completed"}
	retried  = []string{"retry", "completed"}
	failed   = []string{"failed"}
)

// Trouble of the database is not the agent's fault: its task is released, and no attempt is charged. Events that
// cannot be stored are the agent's fault. A broken rule of the tables is a fault of this server, and is retried like
// one of the agent.
func TestDatabaseErrorsChargeNoAttempt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		code     string
		outcomes []string
		attempt  int // the number of the second attempt
	}{
		{"53200", released, 1}, {"53100", released, 1}, {"40001", released, 1}, {"40P01", released, 1},
		{"57P03", released, 1}, {"58030", released, 1}, {"25006", released, 1},
		{"22021", failed, 0}, {"54000", failed, 0},
		{"23514", retried, 2},
	} {
		t.Run(tt.code, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			end := f.trouble(tt.code)
			runs := 0 // one after the other
			f.start(
				config(
					nil,
					agent("a", agentFunc(func(_ context.Context, _ executor.Run, yield func(a2a.Event, error) bool) {
						if runs++; runs == 2 {
							end()
						}
						if yield(chunk("x", "part"), nil) {
							yield(status(a2a.StateCompleted), nil)
						}
					})),
				),
			)
			task := f.submit("a", "go")
			if tt.attempt == 0 {
				f.waitState(task, a2a.StateFailed)
				same(t, "outcomes", tt.outcomes, f.outcomes(task))
				end()
				return
			}
			f.waitState(task, a2a.StateCompleted)
			same(t, "outcomes", tt.outcomes, f.outcomes(task))
			attempts, err := f.Operate.Attempts(t.Context(), task)
			if err != nil || attempts[1].Attempt != tt.attempt {
				t.Errorf("attempts = %+v, %v; want that the second one is number %d", attempts, err, tt.attempt)
			}
		})
	}
}

// A statement that was canceled because it was too slow is repeated within its run.
func TestBlockedAppendIsRepeatedWithinItsRun(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"55P03", "57014"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			end := f.trouble(code)
			begun := make(chan struct{}, 10)
			f.start(
				config(
					nil,
					agent("a", agentFunc(func(_ context.Context, _ executor.Run, yield func(a2a.Event, error) bool) {
						begun <- struct{}{}
						if yield(chunk("x", "part"), nil) {
							yield(status(a2a.StateCompleted), nil)
						}
					})),
				),
			)
			task := f.submit("a", "go")
			receive(t, "the run", begun)
			end()
			f.waitState(task, a2a.StateCompleted)
			same(t, "outcomes", []string{"completed"}, f.outcomes(task))
		})
	}
}
