package operate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
)

// Recorded is a step or a wait of a task as an operator sees it.
type Recorded struct {
	Seq      int
	Kind     a2a.StepKind
	Key      string
	Name     string
	Says     string // the beginning of its result, or of its error
	Failed   bool
	Attempts int
	NextAt   time.Time // when the agent tries it again; zero: it does not
	At       time.Time // when it was recorded
	EndedAt  time.Time // by the agent's clock; of a wait by the database's; zero: it is not over
	Worker   string    // that recorded it
	Child    a2a.ID    // of a call: the task that it has made
	Artifact string    // that the step writes while it runs; empty: none
}

// Signaled is a signal that a task got.
type Signaled struct {
	Name   string
	Value  string // its beginning
	Sender string
	At     time.Time
}

// Waiting says what a task waits for.
type Waiting struct {
	Until   time.Time // zero: no time ends the wait
	Message bool
	Signal  string // empty: no signal ends the wait
	Calls   int    // the calls that it waits for
	Pending int    // how many of them must still end
}

// readSteps reads steps, waits and signals.
func (t *Timeline) readSteps(ctx context.Context, q *dbsqlc.Queries, id a2a.ID) error {
	steps, err := q.TimelineSteps(ctx, db.PGID(id), timelineSteps)
	if err != nil {
		return err
	}
	for _, r := range slices.Backward(steps) {
		t.Steps = append(t.Steps, Recorded{
			Seq: int(r.Seq), Kind: a2a.StepKind(r.Kind), Key: r.Key, Name: r.Name, Says: r.Says, Failed: r.Failed,
			Attempts: int(r.Attempts), NextAt: db.WireTime(r.NextAt), At: db.WireTime(r.RecordedAt),
			EndedAt: db.WireTime(r.EndedAt), Worker: r.Worker, Child: r.ChildID.Bytes, Artifact: r.ArtifactID,
		})
	}
	signals, err := q.TimelineSignals(ctx, db.PGID(id), timelineRows)
	if err != nil {
		return err
	}
	for _, r := range slices.Backward(signals) {
		t.Signals = append(t.Signals, Signaled{r.Name, r.Value, r.Sender, db.WireTime(r.ReceivedAt)})
	}
	t.Cut = t.Cut || len(steps) == timelineSteps || len(signals) == timelineRows
	w, err := q.WaitOfTask(ctx, db.PGID(id))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	t.Waits = &Waiting{Message: w.OnMessage, Signal: w.OnSignal, Calls: int(w.Calls), Pending: int(w.Pending)}
	if w.DueAt.InfinityModifier == pgtype.Finite {
		t.Waits.Until = db.WireTime(w.DueAt)
	}
	return nil
}
