package check

import (
	"context"
	_ "embed" // the queries
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Invariants about what happened outside the database.
const (
	Phantom = "I0 what was answered, executed or delivered belongs to an existing task"
	Lost    = "I1 what was acknowledged is stored"
	Usage   = "I9a the usage of every recorded step is recorded, and none that agents have not reported"
)

// Acknowledged is what a server acknowledged to a client.
type Acknowledged struct {
	Task      string
	Key       string // Idempotency-Key of the message; may be empty
	MessageID string // of the message; may be empty
	Canceled  bool   // the server acknowledged a cancel
}

// Execution is one run of an agent, as the agent recorded it.
type Execution struct {
	Task  string
	Token int64 // of the claim
}

// Outside is the record of clients, agents and the receivers of webhooks.
type Outside struct {
	Acknowledged []Acknowledged
	Executions   []Execution
	Delivered    []string         // tasks whose webhooks were received
	Requests     map[string]int64 // by task: requests to a model that its agent reported, one before each step
}

//go:embed phantoms.sql
var phantoms string

//go:embed lost.sql
var lost string

//go:embed usage.sql
var usage string

// CompareOutside returns what clients, agents and receivers of webhooks know and the database does not. Nothing of it
// may have been retired or purged.
func CompareOutside(ctx context.Context, db Querier, o Outside) ([]Violation, error) {
	var found faults
	var tasks, keys, messages []string
	var canceled []bool
	for _, a := range o.Acknowledged {
		tasks, keys, messages, canceled = append(tasks, a.Task), append(keys, a.Key), append(messages, a.MessageID),
			append(canceled, a.Canceled)
	}
	var executed []string
	var tokens []int64
	for _, e := range o.Executions {
		executed, tokens = append(executed, e.Task), append(tokens, e.Token)
	}
	var users []string
	var requests []int64
	for task, n := range o.Requests {
		users, requests = append(users, task), append(requests, n)
	}
	for _, q := range []struct {
		name, sql string
		args      []any
	}{
		{Phantom, phantoms, []any{tasks, executed, tokens, o.Delivered}},
		{Lost, lost, []any{tasks, keys, messages, canceled}},
		{Usage, usage, []any{users, requests}},
	} {
		rows, err := db.Query(ctx, q.sql, q.args...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q.name, err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ Task, Detail string }])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q.name, err)
		}
		for _, v := range list {
			found.add(q.name, v.Task, "%s", v.Detail)
		}
	}
	return found, nil
}
