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
	if err := mem.Grow(ctx, 2*smallTask); err != nil {
		return nil, err
	}
	small, err := d.reads.do(ctx, tasks.Moment{Task: due.Task, Seq: due.Seq})
	if err != nil {
		return nil, err
	}
	var much *tasks.TooMuch
	if !errors.As(small.Err, &much) {
		return small.Task, small.Err
	}
	mem.ShrinkTo(0)
	if mem != nil && 2*much.Bytes > d.cfg.Budget.Share() {
		// Its history and its artifacts would not fit into a notification either.
		return d.cfg.Store.Tasks.SnapshotAt(ctx, due.Task, due.Seq, tasks.Want{History: new(int)})
	}
	if err := mem.Grow(ctx, 2*much.Bytes); err != nil {
		return nil, err
	}
	return d.cfg.Store.Tasks.SnapshotAt(ctx, due.Task, due.Seq, tasks.Want{Artifacts: true, Most: much.Bytes})
}

// readSmall reads tasks, unless they are large. One task may be there twice, for two webhooks.
func (d *Deliverer) readSmall(ctx context.Context, at []tasks.Moment) ([]tasks.Snapshot, error) {
	out := make([]tasks.Snapshot, len(at))
	for left := indexes(len(at)); len(left) > 0; {
		var now []tasks.Moment
		var places, again []int
		has := make(map[a2a.ID]bool, len(left))
		for _, i := range left {
			if has[at[i].Task] {
				again = append(again, i)
				continue
			}
			has[at[i].Task] = true
			now, places = append(now, at[i]), append(places, i)
		}
		read, err := d.cfg.Store.Tasks.SnapshotsAt(ctx, now, tasks.Want{Artifacts: true, Most: smallTask})
		if err != nil {
			return nil, err
		}
		for k, i := range places {
			out[i] = read[k]
		}
		left = again
	}
	return out, nil
}

// indexes returns 0 to n-1.
func indexes(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}
