package replica

import (
	"context"

	"github.com/a2ad/a2ad/internal/lifecycle"
	"github.com/a2ad/a2ad/internal/rpc"
)

// Run serves until ctx ends and everything has stopped. From the end of stopSignal on, which may be earlier,
// the replica is not ready.
func (r *Replica) Run(ctx, stopSignal context.Context) error {
	defer r.close()
	r.log.InfoContext(ctx, "ready", r.readyAttrs()...)
	err := lifecycle.New(r.backStage(stopSignal), r.middleStage(), r.frontStage(stopSignal)).Run(ctx)
	r.log.InfoContext(ctx, "stopped", "replica", r.name)
	return err
}

func (r *Replica) readyAttrs() []any {
	attrs := []any{"replica", r.name, "api", r.listeners.api.Addr().String(), "agents", len(r.agents.set)}
	if r.api.calls != nil {
		attrs = append(attrs, "grpc", r.listeners.grpc.Addr().String())
	}
	if r.listeners.admin != nil {
		attrs = append(attrs, "admin", r.listeners.admin.Addr().String())
	}
	return attrs
}

// backStage starts first and stops last: what all other parts need.
func (r *Replica) backStage(stopSignal context.Context) lifecycle.Stage {
	stage := lifecycle.Stage{
		{Name: "database", Run: r.database.store.DB.Watch},
		{Name: "publisher", Run: r.database.publisher.Run},
		{Name: "listener", Run: r.database.listener.Run},
	}
	if r.listeners.admin == nil {
		return stage
	}
	r.showMetrics(stopSignal)
	admin := &rpc.Admin{
		Timeout: r.cfg.ReadyTimeout, Checks: r.checks(stopSignal), Metrics: r.observed.metrics.Handler(r.log),
		Operators: r.api.operators,
	}
	return append(stage, lifecycle.Part{Name: "admin", Run: func(ctx context.Context) error {
		return rpc.ServeAdmin(ctx, r.listeners.admin, admin.Handler())
	}})
}

// middleStage stops after the API and the workers, which use it.
func (r *Replica) middleStage() lifecycle.Stage {
	stage := lifecycle.Stage{
		{Name: "streams", Run: r.database.follower.Run},
		{Name: "changes of tasks", Run: r.database.changes.Run},
		{Name: "lost wake-ups", Run: r.database.losses.Run},
		{Name: "remote workers", Run: r.work.remote.Run},
		{Name: "stops", Run: r.work.stopped.Run},
		{Name: "heartbeat", Run: r.newHeart().run},
		{Name: "api keys", Run: r.credentials.followKeys},
		{Name: "credentials in use", Run: r.credentials.sessions.Run},
		{Name: "identity provider", Run: r.credentials.refreshIssuer},
		{Name: "failed sign-ins", Run: r.failures.Run},
		{Name: "webhooks", Run: r.delivery.deliverer.Run},
		{Name: "signing keys", Run: r.delivery.keys.Run},
	}
	return append(stage, r.maintenance()...)
}

// frontStage starts last and stops first: what takes new work.
func (r *Replica) frontStage(stopSignal context.Context) lifecycle.Stage {
	stage := lifecycle.Stage{
		{Name: "workers", Run: r.work.pool.Run},
		{Name: "schedules", Run: r.work.scheduler.Run},
		{Name: "bulk jobs", Run: r.work.jobs.Run},
		{Name: "api", Run: func(ctx context.Context) error {
			return r.api.server.Serve(ctx, r.listeners.api, r.cfg.DrainTimeout)
		}},
		{Name: "end", Run: func(ctx context.Context) error { return r.announce(ctx, stopSignal) }},
		{Name: "agent files", Run: r.followFiles},
	}
	if r.api.calls != nil {
		stage = append(stage, lifecycle.Part{Name: "grpc", Run: func(ctx context.Context) error {
			return r.api.calls.Serve(ctx, r.listeners.grpc, r.cfg.DrainTimeout)
		}})
	}
	return stage
}

// announce logs that the server had to stop. From then until "stopped" it drains.
func (r *Replica) announce(ctx, stopSignal context.Context) error {
	select {
	case <-stopSignal.Done():
	case <-ctx.Done():
	}
	if stopSignal.Err() != nil {
		r.log.InfoContext(ctx, "stopping", "replica", r.name, "cause", context.Cause(stopSignal).Error())
	}
	<-ctx.Done()
	return nil
}
