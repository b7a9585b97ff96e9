package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// The history that the experiment capacity fills in: tasks of a year, of many owners and agents, some per context. One
// in fifty has failed.
const (
	historyOwners  = 100 // the first one is benchOwner
	historyAgents  = 10  // the first one is benchAgent
	historyContext = 4   // tasks
	historyBatch   = 50_000
	historyFillers = 3 // connections
	historySpan    = 365 * 24 * time.Hour
)

// historyTables are the tables with rows of a finished task, except those that triggers fill.
var historyTables = []string{"tasks", "messages", "task_events", "task_attempts", "idempotency_keys", "artifacts",
	"artifact_parts", "task_checkpoints", "task_steps", "task_usage"}

// fillHistory copies the only task of a database under new ids until there are n tasks. grown is called now and then
// with their number.
func (b *bench) fillHistory(ctx context.Context, url string, n int, grown func(int) error) error {
	count, err := b.queryInt(ctx, url, `SELECT count(*) FROM a2a.tasks`)
	if err != nil {
		return err
	}
	start := time.Now()
	var next, done atomic.Int64 // the first task of the next batch, and how many there are
	next.Store(count)
	done.Store(count)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range historyFillers {
		wg.Go(func() {
			cancelOn(cancel, b.fillBatches(ctx, url, n, &next, func(added int) error {
				have := int(done.Add(int64(added)))
				b.log.Info("filled", "tasks", have, "of", n, "after", time.Since(start).Round(time.Second))
				return grown(have)
			}))
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func cancelOn(cancel context.CancelCauseFunc, err error) {
	if err != nil {
		cancel(err)
	}
}

// fillBatches adds batches on one connection until there are n tasks.
func (b *bench) fillBatches(
	ctx context.Context, url string, n int, next *atomic.Int64, added func(int) error,
) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, `
		CREATE TEMP TABLE model AS SELECT t.id, t.created_at FROM a2a.tasks t
		JOIN a2a.idempotency_keys k ON k.task_id = t.id AND k.key = 'h:model';
		CREATE TEMP TABLE n (g bigint, id uuid, at timestamptz, owner text, agent text, context_id text)`); err != nil {
		return err
	}
	statements, err := historyStatements(ctx, conn)
	if err != nil {
		return err
	}
	for {
		from := int(next.Add(historyBatch)) - historyBatch
		if from >= n {
			return nil
		}
		upTo := min(from+historyBatch, n)
		if err := addHistory(ctx, conn, statements, from, upTo, n); err != nil {
			return err
		}
		if err := added(upTo - from); err != nil {
			return err
		}
	}
}

// addHistory adds the tasks from+1 to upTo of n in one transaction.
func addHistory(ctx context.Context, conn *pgx.Conn, statements []string, from, upTo, n int) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `TRUNCATE n`); err != nil {
			return err
		}
		// Ids are UUIDs of version 7: they begin with the milliseconds of the time.
		if _, err := tx.Exec(ctx, `
			INSERT INTO n
			SELECT x.g,
			  (substr(x.h, 1, 8) || '-' || substr(x.h, 9) || '-7' || substr(gen_random_uuid()::text, 16))::uuid, x.at,
			  CASE WHEN x.g % $4 = 0 THEN $6 ELSE 'owner-' || x.g % $4 END,
			  CASE WHEN x.g / $4 % $5 = 0 THEN $7 ELSE 'agent-' || x.g / $4 % $5 END,
			  md5((x.g / ($4 * $8))::text || 'of' || x.g % $4)::uuid::text
			FROM (
			  SELECT y.g, y.at, lpad(to_hex((extract(epoch FROM y.at) * 1000)::bigint), 12, '0') AS h
			  FROM (
			    SELECT g, date_trunc('milliseconds', clock_timestamp()) - $9::interval * (1 - g / $3::float8) AS at
			    FROM generate_series($1::bigint + 1, $2::bigint) g) y) x`,
			from, upTo, n, historyOwners, historyAgents, benchOwner, benchAgent, historyContext,
			historySpan); err != nil {
			return err
		}
		for _, s := range statements {
			if _, err := tx.Exec(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	})
}

// historyStatements returns statements that copy the rows of the model for each row of n. They know from the catalog
// which columns there are.
func historyStatements(ctx context.Context, conn *pgx.Conn) (statements []string, err error) {
	for _, table := range historyTables {
		//nolint:rowserrcheck // ForEachRow returns it
		rows, err := conn.Query(ctx, `SELECT a.attname, a.atttypid = 'timestamptz'::regtype FROM pg_attribute a
			WHERE a.attrelid = ('a2a.' || $1)::regclass AND a.attnum > 0 AND NOT a.attisdropped
			AND a.attgenerated = '' AND a.attname <> 'xid' ORDER BY a.attnum`, table)
		if err != nil {
			return nil, err
		}
		var names, values []string
		var name string
		var isTime bool
		if _, err := pgx.ForEachRow(rows, []any{&name, &isTime}, func() error {
			names, values = append(names, name), append(values, historyValue(table, name, isTime))
			return nil
		}); err != nil {
			return nil, err
		}
		key := "task_id"
		if table == "tasks" {
			key = "id"
		}
		statements = append(statements, fmt.Sprintf("INSERT INTO a2a.%s (%s) SELECT %s FROM n, model m JOIN a2a.%s r "+
			"ON r.%s = m.id ORDER BY n.g", table, strings.Join(names, ", "), strings.Join(values, ", "), table, key))
	}
	return statements, nil
}

// historyValue is the expression for a column of a copy.
func historyValue(table, name string, isTime bool) string {
	switch {
	case isTime:
		return "n.at + (r." + name + " - date_trunc('milliseconds', m.created_at))" // some are whole milliseconds
	case name == "id" || name == "task_id":
		return "n.id"
	case name == "owner" || name == "agent" || name == "context_id":
		return "n." + name
	case name == "event_uid":
		return "gen_random_uuid()"
	case name == "message_id" || name == "idem_key":
		return "gen_random_uuid()::text"
	case name == "key":
		return "'h:' || gen_random_uuid()"
	case name == "list_key":
		return "a2a.list_key(r.tenant, n.owner, n.agent)"
	case name == "state" && (table == "tasks" || table == "task_events"):
		return "CASE WHEN r.state = 100 AND n.g % 50 = 0 THEN 101 ELSE r.state END"
	default:
		return "r." + name
	}
}
