package engine

import (
	"context"
	"errors"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// This file draws memory from the budget before every read of tasks. A read asks for small tasks only at first, unless
// its caller knows the size. For a larger task it gets only the size from the task's row, draws that much, and reads
// again.

// Sizes of reads.
const (
	smallRead = 16 << 10  // tasks up to this size are read at once
	listRead  = 256 << 10 // the same for the tasks of a page
	exactFrom = 1 << 20   // tasks from this size on are measured: their row has only an upper bound
	pageBytes = 4 << 20   // of the tasks of one page, unless there is only one
	pieces    = 256 << 10 // extra memory for an answer that is written in pieces
)

// maxLarge is how many large reads use the database at once.
const maxLarge = 2

// room is the memory that tasks of a size take until they are written: the tasks, and their
// encoding.
func room(mem *budget.Lease, bytes int64) int64 {
	if n := mem.Whole(); n > 0 {
		return (1 + n) * bytes
	}
	return bytes + min(bytes, pieces)
}

// readTasks runs read with a size limit for which the budget of the request has room. size is what the caller knows of
// the size, or 0.
func readTasks[T any](ctx context.Context, large slots, w tasks.Want, size int64,
	measure func(context.Context) (int64, error), read func(context.Context, tasks.Want) (T, error)) (T, error) {
	mem := budget.From(ctx)
	if mem == nil {
		return read(ctx, w)
	}
	var none T
	if size <= smallRead {
		if err := mem.Grow(ctx, room(mem, smallRead)); err != nil {
			return none, err
		}
		w.Most = smallRead
		t, err := read(ctx, w)
		var much *tasks.TooMuch
		if !errors.As(err, &much) {
			return t, err
		}
		size = much.Bytes
		mem.Shrink(room(mem, smallRead)) // a lease that holds nothing for work may wait
	}
	if size > exactFrom {
		ctx = aside(ctx)
	}
	whole := w.History == nil && w.Artifacts && room(mem, size) <= mem.Most() // the row is about exact then
	if measure != nil && size > exactFrom && !whole {
		exact, err := measure(ctx)
		if err != nil {
			return none, err
		}
		size = min(size, exact)
	}
	if err := mem.Grow(ctx, room(mem, size)); err != nil {
		return none, err
	}
	w.Most = 0
	if size <= exactFrom {
		return read(ctx, w)
	}
	leave, err := large.enter(ctx)
	if err != nil {
		return none, err
	}
	defer leave()
	return read(ctx, w)
}

// answer reads a task of the caller for the answer to a request that was carried out. It waits for a connection as long
// as ctx lasts: a refusal would look as if nothing had been done. Each follows a write, which takes longer: few wait.
func (e *Engine) answer(ctx context.Context, c db.Caller, id a2a.ID, w tasks.Want) (*a2a.Task, error) {
	return e.snapshotOf(db.Patient(ctx), c, id, 0, w)
}

// snapshotOf reads a task of the caller whose size is known; 0 is unknown.
func (e *Engine) snapshotOf(
	ctx context.Context, c db.Caller, id a2a.ID, size int64, w tasks.Want,
) (*a2a.Task, error) {
	measure := func(ctx context.Context) (int64, error) {
		sizes, err := e.sizes(ctx, c, []a2a.ID{id}, w)
		if err != nil {
			return 0, err
		}
		return sizes[0], nil
	}
	return readTasks(ctx, e.large, w, size, measure, func(ctx context.Context, w tasks.Want) (*a2a.Task, error) {
		return e.store.Tasks.Snapshot(ctx, c, id, w)
	})
}

// snapshotAt reads a task as it was at an event.
func (e *Engine) snapshotAt(ctx context.Context, id a2a.ID, seq int64, w tasks.Want) (*a2a.Task, error) {
	return readTasks(ctx, e.large, w, 0, nil, func(ctx context.Context, w tasks.Want) (*a2a.Task, error) {
		return e.store.Tasks.SnapshotAt(ctx, id, seq, w)
	})
}

// sizes measures tasks. PostgreSQL has to unpack them for that.
func (e *Engine) sizes(ctx context.Context, c db.Caller, ids []a2a.ID, w tasks.Want) ([]int64, error) {
	leave, err := e.large.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return e.store.Tasks.Sizes(ctx, c, ids, w)
}

// slots limits how many large reads use the database at once. The others wait without a connection,
// which leaves connections for small reads.
type slots chan struct{}

func (s slots) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// tasksOf reads the tasks of a page, in order: all of them, or only the first ones if they are too
// large together. n is how many positions of the list they cover.
func (e *Engine) tasksOf(ctx context.Context, c db.Caller, ids []a2a.ID,
	w tasks.Want) (taskList []a2a.Task, n int, err error) {
	mem := budget.From(ctx)
	if err := mem.Grow(ctx, room(mem, listRead)); err != nil {
		return nil, 0, err
	}
	w.Most = listRead
	taskList, err = e.store.Tasks.Snapshots(ctx, c, ids, w)
	var much *tasks.TooMuch
	if !errors.As(err, &much) {
		return taskList, len(ids), err
	}
	n, size := len(ids), much.Bytes
	if size > exactFrom {
		sizes, err := e.sizes(ctx, c, ids, w)
		if err != nil {
			return nil, 0, err
		}
		n, size = 0, 0
		for n < len(ids) && (n == 0 || size+sizes[n] <= pageBytes) {
			size += sizes[n]
			n++
		}
	}
	mem.Shrink(room(mem, listRead))
	if err := mem.Grow(ctx, room(mem, size)); err != nil {
		return nil, 0, err
	}
	w.Most = 0
	if size > exactFrom {
		leave, err := e.large.enter(ctx)
		if err != nil {
			return nil, 0, err
		}
		defer leave()
	}
	taskList, err = e.store.Tasks.Snapshots(ctx, c, ids[:n], w)
	return taskList, n, err
}

// keptMessage is the largest message that a blocking send keeps in memory while it waits.
const keptMessage = 64 << 10

// forget gives back memory of a request once its message is stored. It drops a large message, which
// can be read again. It reports whether the message is still in memory.
func forget(mem *budget.Lease, in *tasks.Submission, op *a2a.SendMessage) bool {
	if mem == nil || messageSize(&op.Message) <= keptMessage {
		mem.ShrinkTo(2 * keptMessage)
		return true
	}
	in.Message, op.Message, op.Metadata = a2a.Message{}, a2a.Message{}, nil
	mem.ShrinkTo(0)
	return false
}
