package db

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// demotions is a tracer that looks for errors of a server that is not the one to use any more.
type demotions struct {
	store *DB
	next  pgx.QueryTracer // may be nil
}

// TraceQueryStart passes the call on.
func (d demotions) TraceQueryStart(
	ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData,
) context.Context {
	if d.next == nil {
		return ctx
	}
	return d.next.TraceQueryStart(ctx, conn, data)
}

// TraceQueryEnd passes the call on.
func (d demotions) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	// 57P01 to 57P05 end a session, 08 is of the connection, and 0A000 comes from a pooler that has moved a session.
	if IsCode(data.Err, "25006", "57P01", "57P02", "57P03", "57P04", "57P05", "08", "0A000") {
		d.store.mayBeDemoted()
	}
	if d.next != nil {
		d.next.TraceQueryEnd(ctx, conn, data)
	}
}
