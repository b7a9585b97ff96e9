package replica

import (
	"context"
	"errors"

	"github.com/a2ad/a2ad/internal/rpc"
)

var (
	errNotAccepting = errors.New("not listening")
	errNoClaims     = errors.New("no claim has succeeded since the start or the last failure")
)

// checks is what /readyz asks. stopSignal ends when the server must stop.
func (r *Replica) checks(stopSignal context.Context) []rpc.Check {
	return []rpc.Check{
		{Name: "drain", Test: func(context.Context) error { return context.Cause(stopSignal) }},
		{Name: "database", Test: r.database.store.DB.Ready},
		{Name: "schema", Test: r.database.store.Operate.CheckSchema},
		{Name: "api", Test: func(context.Context) error {
			if !r.api.server.Accepting() || r.api.calls != nil && !r.api.calls.Accepting() {
				return errNotAccepting
			}
			return nil
		}},
		{Name: "workers", Test: func(context.Context) error {
			if !r.work.pool.Healthy() {
				return errNoClaims
			}
			return nil
		}},
	}
}

// ready reports whether all checks pass in time.
func (r *Replica) ready(ctx context.Context, checks []rpc.Check) bool {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ReadyTimeout)
	defer cancel()
	for _, c := range checks {
		if c.Test(ctx) != nil {
			return false
		}
	}
	return true
}
