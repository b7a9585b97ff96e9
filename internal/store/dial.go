package store

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// boundCancels gives the requests limit by which the driver cancels what a connection was
// doing when it broke. The driver waits for one for 15 s, and the broken connection keeps its
// place in the pool meanwhile: a replica that was cut off from PostgreSQL would claim nothing
// for as long after it can reach it again. Such a request is told by its deadline: whoever
// dials for a connection has at most limit, which is the timeout of that.
func boundCancels(dial pgconn.DialFunc, limit time.Duration) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		end := time.Now().Add(limit)
		if by, ok := ctx.Deadline(); ok && !by.After(end) {
			return dial(ctx, network, addr)
		}
		ctx, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if err := conn.SetDeadline(end); err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
}
