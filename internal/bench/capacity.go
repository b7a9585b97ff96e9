package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// historyDatabase is kept with -data.
const historyDatabase = "a2ad_history"

// capacity measures a database with very many ended tasks: what they occupy, and what they cost other operations.
func (b *bench) capacity(ctx context.Context) error {
	n := b.opts.tasks
	if n == 0 {
		n = b.number(1_000_000, 200_000)
	}
	url, drop, err := b.history(ctx)
	if err != nil {
		return err
	}
	defer drop()
	if err := b.modelTask(ctx, url); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	var atHalf int64
	var half sync.Once
	if err := b.fillHistory(ctx, url, n, func(have int) (err error) {
		if have >= n/2 && have < n {
			half.Do(func() {
				atHalf, err = b.queryInt(ctx, url, `SELECT pg_database_size(current_database())`)
				atHalf /= int64(have)
			})
		}
		return err
	}); err != nil {
		return err
	}
	have, err := b.queryInt(ctx, url, `SELECT count(*) FROM a2a.tasks`) // with -data there may be more
	if err != nil {
		return err
	}
	n = int(have)
	start := time.Now()
	if err := b.exec(ctx, url, "VACUUM (ANALYZE, INDEX_CLEANUP ON)"); err != nil {
		return err
	}
	vacuum := time.Since(start)
	if err := b.exec(ctx, url, "CHECKPOINT"); err != nil {
		return err
	}
	if err := b.reportSizes(ctx, url, n, atHalf, vacuum); err != nil {
		return err
	}
	return b.withHistory(ctx, url, n)
}

// history opens or creates the database that is filled. drop removes it, unless -data keeps it.
func (b *bench) history(ctx context.Context) (url string, drop func(), err error) {
	if b.opts.data == "" {
		return b.database(ctx)
	}
	found, err := b.queryInt(ctx, b.pg.URL("postgres"), `SELECT count(*) FROM pg_database WHERE datname = $1`,
		historyDatabase)
	if err == nil && found == 0 {
		err = b.admin(ctx, "CREATE DATABASE "+historyDatabase+" TEMPLATE "+template)
	}
	return b.pg.URL(historyDatabase), func() {}, err
}

// modelTask lets a server run the task that is copied, unless there is one.
func (b *bench) modelTask(ctx context.Context, url string) error {
	have, err := b.queryInt(ctx, url, `SELECT count(*) FROM (SELECT FROM a2a.tasks LIMIT 1) t`)
	if err != nil || have > 0 {
		return err
	}
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	s, err := b.serve(ctx, "bench-model", url)
	if err != nil {
		return err
	}
	defer s.stop()
	conn, err := dial(ctx, s.addr(), "/", key, 4096)
	if err != nil {
		return err
	}
	defer conn.close()
	const text = "What is the weather in Berlin tomorrow, and should I take an umbrella to the office?"
	answer, err := conn.doWith(sendRequest("message/send", "model", textPart(text), ""), "Idempotency-Key: model\r\n")
	if err == nil && !bytes.Contains(answer, completed) {
		err = fmt.Errorf("unexpected answer: %.300s", answer)
	}
	return err
}

// reportSizes adds the figure of the size of a task.
func (b *bench) reportSizes(ctx context.Context, url string, n int, atHalf int64, vacuum time.Duration) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	//nolint:rowserrcheck // ForEachRow returns it
	rows, err := conn.Query(ctx, `SELECT c.relname, pg_table_size(c.oid), pg_indexes_size(c.oid)
		FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
		WHERE s.nspname = 'a2a' AND c.relkind = 'r' AND pg_total_relation_size(c.oid) > $1
		ORDER BY pg_total_relation_size(c.oid) DESC`, 20*n)
	if err != nil {
		return err
	}
	var name string
	var table, indexes, all, allIndexes int64
	var parts []string
	if _, err := pgx.ForEachRow(rows, []any{&name, &table, &indexes}, func() error {
		all, allIndexes = all+table+indexes, allIndexes+indexes
		parts = append(parts, fmt.Sprintf("%s %d + %d", name, table/int64(n), indexes/int64(n)))
		return nil
	}); err != nil {
		return err
	}
	detail := fmt.Sprintf("%.1f GB; table and indexes per task: %s; VACUUM of all took %s", float64(all)/1e9,
		strings.Join(parts, ", "), vacuum.Round(100*time.Millisecond))
	if atHalf > 0 {
		detail += fmt.Sprintf("; with half as many tasks %d B each", atHalf)
	}
	b.report.add(figure{Name: fmt.Sprintf("%s ended tasks: size of each", millions(n)),
		Value: float64(all) / float64(n), Unit: "B", Detail: detail})
	b.report.add(figure{Name: fmt.Sprintf("%s ended tasks: indexes of each", millions(n)),
		Value: float64(allIndexes) / float64(n), Unit: "B"})
	return nil
}

func millions(n int) string {
	if n >= 1_000_000 {
		return fmt.Sprintf("%.3gM", float64(n)/1e6)
	}
	return fmt.Sprintf("%dk", n/1000)
}
