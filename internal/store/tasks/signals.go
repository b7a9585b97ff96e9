package tasks

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/wake"
)

// Signal is a named value for a task. The wait of the task that is for this name ends; otherwise the signal is kept for
// the next such wait. A signal ends one wait.
type Signal struct {
	Task   a2a.ID
	Name   string
	Value  a2a.Raw                 // nil: null
	Key    string                  // of idempotency; empty: none
	Sender string                  // for the record; empty: this process
	May    func(agent string) bool // whether the sender may signal tasks of the agent; nil: all
	// Record adds the signal to the audit log, with the actor and the reason of access.ActingBy. A repeated signal is
	// not recorded again.
	Record bool
}

// Limits of the signals of one task.
const (
	maxSignals    = 1000
	maxSignalName = 256
)

// SendSignal stores a signal. The same key with the same name and value changes nothing.
//
// Errors for the sender: CodeTaskNotFound, CodeTaskTerminal, CodeInvalidParams (key used for another signal, too many
// signals).
func (s *Store) SendSignal(ctx context.Context, in Signal) error {
	if in.Name == "" || len(in.Name) > maxSignalName {
		return a2a.InvalidParams("name", "must have 1 to %d bytes", maxSignalName)
	}
	if in.Value == nil {
		in.Value = a2a.Raw("null")
	}
	if in.Key == "" {
		in.Key = db.NewUID().String()
	}
	digest := sha256.Sum256(append(append([]byte(in.Name), 0), in.Value...))
	_, err := db.Repeat(ctx, s.db, func(int) (none struct{}, err error) { // safe because of the key
		return db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (none struct{}, err error) {
			return none, signalIn(ctx, tx, in, digest)
		})
	})
	if err != nil {
		return fmt.Errorf("send a signal: %w", db.Unavailable(err))
	}
	return nil
}

func signalIn(ctx context.Context, tx *db.Tx, in Signal, digest [32]byte) error {
	q := dbsqlc.New(tx)
	t, err := q.SignalTask(ctx, db.PGID(in.Task))
	if errors.Is(err, pgx.ErrNoRows) || err == nil && in.May != nil && !in.May(t.Agent) {
		return a2a.ErrTaskNotFound
	}
	if err != nil {
		return err
	}
	if t.Signals >= maxSignals {
		return a2a.InvalidParams("", "the task has its limit of %d signals", maxSignals)
	}
	sender := cmp.Or(in.Sender, tx.Actor())
	out, err := q.SignalAdd(ctx, dbsqlc.SignalAddParams{
		TaskID: db.PGID(in.Task), Name: in.Name, Key: in.Key, Digest: digest[:], Value: in.Value, Sender: sender,
	})
	switch state := a2a.State(t.State); {
	case err != nil:
		return err
	case !out.Added && !bytes.Equal(out.Digest, digest[:]):
		return a2a.InvalidParams("", "the Idempotency-Key was used before with another signal")
	case out.Added && state.Terminal():
		return a2a.Errorf(a2a.CodeTaskTerminal, "the task is %s and takes no more signals", state)
	}
	if out.Due {
		tx.Wake(wake.Waits)
	}
	if in.Record && out.Added {
		return access.Record(ctx, tx, access.Action{
			Name: access.ActionTaskSignal, Tenant: t.Tenant, Owner: t.Owner, Task: in.Task,
			Detail: map[string]any{"signal": in.Name},
		})
	}
	return nil
}
