package workerapi_test

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// firstClaim is a tracer that reports when the first claim statement has ended.
type firstClaim struct {
	once  sync.Once
	ended chan struct{}
}

type isClaim struct{}

func (c *firstClaim) TraceQueryStart(ctx context.Context, _ *pgx.Conn,
	data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "name: TaskClaim ") {
		return context.WithValue(ctx, isClaim{}, true)
	}
	return ctx
}

func (c *firstClaim) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(isClaim{}) != nil {
		c.once.Do(func() { close(c.ended) })
	}
}

// waitPolled returns when a claim has found the queue empty. From then on wake-ups matter.
func (f *fixture) waitPolled() {
	f.t.Helper()
	select {
	case <-f.claims.ended:
	case <-time.After(5 * time.Minute):
		f.t.Fatal("no claim has polled the queue")
	}
}
