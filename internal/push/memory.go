package push

import (
	"context"
	"errors"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// smallTask is the memory for a task that is read without knowing its size.
const smallTask = 16 << 10

// read reads the task of a delivery, once the memory budget has room for it and for its rendered body.
func (d *Deliverer) read(ctx context.Context, mem *budget.Lease, due *webhooks.Delivery) (*a2a.Task, error) {
	w := tasks.Want{Artifacts: true}
	if mem == nil {
		return d.cfg.Store.Tasks.SnapshotAt(ctx, due.Task, due.Seq, w)
	}
	if err := mem.Grow(ctx, 2*smallTask); err != nil {
		return nil, err
	}
	w.Most = smallTask
	task, err := d.cfg.Store.Tasks.SnapshotAt(ctx, due.Task, due.Seq, w)
	var much *tasks.TooMuch
	if !errors.As(err, &much) {
		return task, err
	}
	mem.ShrinkTo(0)
	if 2*much.Bytes > d.cfg.Budget.Share() {
		// Its history and its artifacts would not fit into a notification either.
		return d.cfg.Store.Tasks.SnapshotAt(ctx, due.Task, due.Seq, tasks.Want{History: new(int)})
	}
	if err := mem.Grow(ctx, 2*much.Bytes); err != nil {
		return nil, err
	}
	w.Most = much.Bytes
	return d.cfg.Store.Tasks.SnapshotAt(ctx, due.Task, due.Seq, w)
}
