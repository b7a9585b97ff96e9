package worker_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
)

// trouble makes PostgreSQL refuse the events of agents with a SQLSTATE, until it is over.
func (f *fixture) trouble(code string) (over func()) {
	f.t.Helper()
	f.exec(fmt.Sprintf(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'planted' USING ERRCODE = '%s'; END $$`, code))
	f.exec(`CREATE TRIGGER refuse BEFORE INSERT ON a2a.task_events FOR EACH ROW WHEN (NEW.kind <> 1) EXECUTE FUNCTION public.refuse()`)
	return func() { f.exec(`DROP TRIGGER refuse ON a2a.task_events`) }
}

// The database's trouble is no fault of an agent: its task is given back, and no attempt is charged. What cannot be
// stored is the agent's.
func TestTroubleOfTheDatabaseChargesNoAttempt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		code    string
		charged bool
	}{
		{"53200", false}, {"53100", false}, {"40001", false}, {"40P01", false}, {"57P03", false}, {"58030", false}, {"25006", false},
		{"22021", true}, {"23514", true}, {"54000", true},
	} {
		t.Run(tt.code, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			over := f.trouble(tt.code)
			runs := 0 // one after the other
			f.start(config(nil, agent("a", agentFunc(func(_ context.Context, _ executor.Run, yield func(a2a.Event, error) bool) {
				if runs++; runs == 2 {
					over()
				}
				if yield(chunk("x", "part"), nil) {
					yield(status(a2a.StateCompleted), nil)
				}
			}))))
			task := f.submit("a", "go")
			if tt.charged {
				f.waitState(task, a2a.StateFailed)
				same(t, "outcomes", []string{"failed"}, f.outcomes(task))
				over()
				return
			}
			f.waitState(task, a2a.StateCompleted)
			same(t, "outcomes", []string{"released", "completed"}, f.outcomes(task))
			attempts, err := f.Attempts(f.ctx, task)
			if err != nil || attempts[1].Attempt != 1 {
				t.Errorf("attempts = %+v, %v; want that the second is attempt 1 again", attempts, err)
			}
		})
	}
}

// A statement that was given up because it took too long is repeated within its run.
func TestBlockedAppendIsRepeatedWithinItsRun(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"55P03", "57014"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			over := f.trouble(code)
			begun := make(chan struct{}, 10)
			f.start(config(nil, agent("a", agentFunc(func(_ context.Context, _ executor.Run, yield func(a2a.Event, error) bool) {
				begun <- struct{}{}
				if yield(chunk("x", "part"), nil) {
					yield(status(a2a.StateCompleted), nil)
				}
			}))))
			task := f.submit("a", "go")
			receive(t, "the run", begun)
			over()
			f.waitState(task, a2a.StateCompleted)
			same(t, "outcomes", []string{"completed"}, f.outcomes(task))
		})
	}
}
