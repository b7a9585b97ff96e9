package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/store/db"
)

// line is where streams wait to begin: each reads its task first. A few do so at once, in the order in which they came.
// The others hold neither a connection nor memory of the budget, and delay no request. Nobody is refused because others
// are before him: the limit of open streams is the limit of the line too.
type line struct {
	turns   slots
	waiting atomic.Int64
}

type turnKey struct{}

// enter waits for a turn, until ctx or drain ends; drain may be nil. The turn lasts until leave, until aside, or until
// the request has to wait for memory: the next in line must not wait for that. Reads with its context are patient too.
func (l *line) enter(ctx, drain context.Context) (turn context.Context, leave func(), err error) {
	select {
	case l.turns <- struct{}{}: // also in a drain
	default:
		l.waiting.Add(1)
		defer l.waiting.Add(-1)
		wait, stop := withDrain(ctx, drain)
		defer stop()
		select {
		case l.turns <- struct{}{}:
		case <-wait.Done():
			if err := context.Cause(wait); !errors.Is(err, ErrDraining) {
				return nil, nil, err
			}
			return nil, nil, errStopping
		}
	}
	mem := budget.From(ctx)
	pass := sync.OnceFunc(func() { <-l.turns })
	mem.OnWait(pass)
	leave = func() {
		mem.OnWait(nil)
		pass()
	}
	return db.PatientOfStream(context.WithValue(ctx, turnKey{}, leave)), leave, nil
}

var errStopping = &a2a.Error{Code: a2a.CodeUnavailable, Message: "the server is about to stop"}

// aside returns a context for a large read, which waits for others of its kind. If ctx has a turn, the next one gets
// it, and small tasks do not wait for large ones.
func aside(ctx context.Context) context.Context {
	leave, ok := ctx.Value(turnKey{}).(func())
	if !ok {
		return ctx
	}
	leave()
	return db.Patient(ctx)
}
