package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

const listPage = 50

// list measures pages of the list of an owner with many tasks, at all depths.
func (b *bench) list(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	taskList := b.number(1_000_000, 100_000)
	if err := b.fillEnded(ctx, url, taskList); err != nil {
		return err
	}
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	s, err := b.serve(ctx, "bench-list", url)
	if err != nil {
		return err
	}
	defer s.stop()
	conn, err := dial(ctx, s.addr(), "/", key, 64<<10)
	if err != nil {
		return err
	}
	defer conn.close()
	start := time.Now()
	if _, err := listTasks(conn, "", listPage, taskList); err != nil {
		return err
	}
	counted := ms(time.Since(start))
	tokens, err := listDepths(ctx, conn, taskList)
	if err != nil {
		return err
	}
	took, err := b.listTimes(ctx, conn, tokens, taskList)
	if err != nil {
		return err
	}
	var all []time.Duration
	var medians []float64
	for _, t := range took {
		slices.Sort(t)
		medians = append(medians, ms(quantile(t, 0.5)))
		all = append(all, t...)
	}
	slices.Sort(all)
	deepest := len(medians) - 1
	size := fmt.Sprintf("list of %dk tasks, page of %d", taskList/1000, listPage)
	b.report.add(figure{
		Name: size + ": p99", Value: ms(quantile(all, 0.99)), Unit: "ms", Target: atMost(20).onQuiet(),
		Detail: fmt.Sprintf("%d pages at %d depths over HTTP; worst %s ms; the first one, which counted all tasks, "+
			"%s ms",
			len(all), len(took), number(ms(all[len(all)-1])), number(counted)),
	})
	b.report.add(figure{
		Name: size + ": deepest / first", Value: medians[deepest] / medians[0], Unit: "×", Target: atMost(1.2),
		Baseline: fmt.Sprintf("first: %s ms", number(medians[0])),
		Detail:   fmt.Sprintf("deepest: after %d tasks; medians, in turns", taskList*deepest/len(medians)),
	})
	return b.listShared(ctx, url, taskList)
}

// fillEnded creates finished tasks that ended during the last day, each with what a page shows.
func (b *bench) fillEnded(ctx context.Context, url string, taskList int) error {
	s, err := b.store(ctx, url)
	if err != nil {
		return err
	}
	model, err := s.Tasks.Submit(ctx, submission(0)) // the template of a message in the store's format
	s.Close()
	if err != nil {
		return err
	}
	for _, q := range []struct {
		sql  string
		args []any
	}{
		{`INSERT INTO a2a.tasks (id, tenant, owner, agent, context_id, state, status_at, last_seq, first_seq, last_at,
			last_message_seq, last_user_seq, created_at)
		SELECT gen_random_uuid(), $2, $3, $4, 'c' || n, 100, x.at, 4, 4, x.at, 1, 1, x.at
		FROM (SELECT n, date_trunc('milliseconds',
		clock_timestamp() - interval '1 day' + n * interval '1 day' / $1::int) AS at FROM generate_series(1, $1) n) x`,
			[]any{taskList, benchTenant, benchOwner, benchAgent}},
		{`INSERT INTO a2a.messages (task_id, seq, at_seq, message_id, role, body)
		SELECT t.id, 1, 1, t.id::text, 1, m.body FROM a2a.tasks t, a2a.messages m WHERE t.last_seq = 4
		AND m.task_id = $1`, []any{model.Task.String()}},
		{`INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, epoch, worker, committed_at, body)
		SELECT t.id, 4, gen_random_uuid(), 1, 100, 1, 1, 'bench', t.last_at, '{}' FROM a2a.tasks t
		WHERE t.last_seq = 4`, nil},
		{`DELETE FROM a2a.task_ready`, nil},
		{`DELETE FROM a2a.tasks WHERE state < 100`, nil},
		{`VACUUM (ANALYZE) a2a.tasks`, nil}, {`VACUUM (ANALYZE) a2a.messages`, nil},
		{`VACUUM (ANALYZE) a2a.task_events`, nil}, {`CHECKPOINT`, nil},
	} {
		if err := b.exec(ctx, url, q.sql, q.args...); err != nil {
			return err
		}
	}
	return nil
}

// listTasks reads one page and returns the token of the next.
func listTasks(conn *httpConn, token string, size, total int) (next string, err error) {
	answer, err := conn.do([]byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":{"pageSize":` +
		strconv.Itoa(size) + `,"pageToken":"` + token + `"}}`))
	if err != nil {
		return "", err
	}
	var got struct {
		Result struct {
			Tasks         []json.RawMessage
			TotalSize     int
			NextPageToken string
		}
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return "", err
	}
	if r := &got.Result; len(r.Tasks) == 0 || r.NextPageToken != "" && len(r.Tasks) != size || r.TotalSize != total {
		return "", fmt.Errorf("a page of %d of %d tasks: %.300s", len(r.Tasks), r.TotalSize, answer)
	}
	return got.Result.NextPageToken, nil
}

// listDepths walks the whole list and returns page tokens at ten depths.
func listDepths(ctx context.Context, conn *httpConn, taskList int) (tokens []string, err error) {
	const size = 100
	token := ""
	for page := 0; page < taskList/size; page++ {
		if page%(taskList/size/10) == 0 {
			tokens = append(tokens, token)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if token, err = listTasks(conn, token, size, taskList); err != nil {
			return nil, err
		}
	}
	if token != "" {
		return nil, errors.New("the list has pages after its last task")
	}
	return tokens, nil
}

// listTimes reads pages at all depths in turns.
func (b *bench) listTimes(
	ctx context.Context, conn *httpConn, tokens []string, taskList int,
) ([][]time.Duration, error) {
	took := make([][]time.Duration, len(tokens))
	for round := range b.number(200, 60) {
		for i, token := range tokens {
			start := time.Now()
			if _, err := listTasks(conn, token, listPage, taskList); err != nil {
				return nil, err
			}
			if round > 4 {
				took[i] = append(took[i], time.Since(start))
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return took, nil
}

// listShared measures the first page of a whole tenant, which has no index.
func (b *bench) listShared(ctx context.Context, url string, taskList int) error {
	s, err := b.store(ctx, url)
	if err != nil {
		return err
	}
	defer s.Close()
	caller := db.Caller{Tenant: benchTenant, Owner: "another", Shared: true}
	var took []float64
	for range 6 {
		start := time.Now()
		if _, _, err := s.Tasks.Page(ctx, caller, tasks.Filter{Agent: benchAgent, Limit: listPage + 1}); err != nil {
			return err
		}
		took = append(took, ms(time.Since(start)))
	}
	b.report.add(figure{
		Name: fmt.Sprintf("list of a tenant that shares %dk tasks: a page", taskList/1000), Unit: "ms",
		Detail: "no target: there is no index for it: see docs/reference/protocol.md",
	}.series(took[1:]))
	return nil
}
