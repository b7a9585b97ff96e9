package replica

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/worker"
)

const (
	// heartbeatEvery is how often a server records that it runs. tasks.FreshHeartbeat is longer than two of them.
	heartbeatEvery = 15 * time.Second
	// leaveTimeout bounds the removal of the record when the server stops.
	leaveTimeout = 2 * time.Second
)

// heart records that the server runs, and which remote workers are in touch with it.
type heart struct {
	store  *tasks.Store
	log    *slog.Logger
	load   func() worker.Load
	remote func() []tasks.RemoteWorker
	beat   tasks.Heartbeat // what does not change

	last   worker.Load // run only; of the last heartbeat
	lastAt time.Time   // run only
}

func (r *Replica) newHeart() *heart {
	host, err := os.Hostname()
	if err != nil {
		host = "" // it is only shown
	}
	return &heart{
		store: r.database.store.Tasks, log: r.log, load: r.work.pool.Load, remote: r.work.remote.Present,
		beat: tasks.Heartbeat{
			Name: r.name, Instance: r.database.store.DB.Instance(), Version: r.options.Build.Version, Host: host,
		},
	}
}

// run records until ctx is done. Then it removes the record, because the server has stopped.
func (h *heart) run(ctx context.Context) error {
	h.last, h.lastAt = h.load(), time.Now()
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for {
		h.record(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			h.leave(ctx)
			return nil
		}
	}
}

func (h *heart) record(ctx context.Context) {
	now, at := h.load(), time.Now()
	beat := h.beat
	beat.Slots, beat.Busy, beat.Remote = now.Slots, now.Busy, h.remote()
	beat.Commands, beat.BusyCommands, beat.CommandsWait = now.Commands, now.BusyCommands, now.Waiting
	beat.BusyShare = busyShare(h.last, now, at.Sub(h.lastAt))
	h.last, h.lastAt = now, at
	if err := h.store.Heartbeat(ctx, &beat); err != nil && ctx.Err() == nil {
		h.log.WarnContext(ctx, "record a heartbeat", "err", err) // what was in touch with it is in touch again
	}
}

// busyShare returns the part of the slots that was in use in a period.
func busyShare(before, now worker.Load, period time.Duration) float64 {
	if now.Slots == 0 || period <= 0 {
		return 0
	}
	share := float64(now.Used-before.Used) / (float64(now.Slots) * float64(period))
	return min(max(share, 0), 1)
}

func (h *heart) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := h.store.Leave(ctx, h.beat.Name, h.beat.Instance); err != nil {
		h.log.WarnContext(ctx, "remove the record of this server", "err", err) // others forget it
	}
}
