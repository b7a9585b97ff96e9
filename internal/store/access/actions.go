package access

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/db"
)

// Action is an entry of the audit log: what an actor did.
type Action struct {
	Actor  string // "key <id>", "operator <user>@<host>", "replica <name>", "address <ip>"; empty: Config.Actor
	Name   string // one of the Action… constants
	Tenant string // whose object it was about; empty if it had no tenant
	Owner  string
	Task   a2a.ID // zero: no task
	Detail map[string]any
}

// The recorded actions. docs/reference/audit.md explains each, with its details.
const (
	ActionSignInFailed = "signin.failed"
	ActionKeyCreate    = "key.create"
	ActionKeyRevoke    = "key.revoke"
	ActionKeysRewrap   = "keys.rewrap"
	ActionTaskCancel   = "task.cancel"
	ActionTaskRetry    = "task.retry"
	ActionTaskResume   = "task.resume"
	ActionTaskAnswer   = "task.answer"
	ActionTaskAssign   = "task.assign"
	ActionTaskSignal   = "task.signal"
	ActionTaskPurge    = "task.purge"
	ActionTaskRetire   = "task.retire"
	ActionTaskImport   = "task.import"
	ActionLogPrune     = "log.prune"
	ActionAuditRetire  = "audit.retire"
	ActionPushReplay   = "push.replay"
	ActionPushEnable   = "push.enable"
	ActionPushDisable  = "push.disable"
	ActionConfigReload = "config.reload"
	ActionSessionOpen  = "session.open"

	ActionSessionRevoke = "session.revoke"

	ActionAgentPause   = "agent.pause"
	ActionAgentResume  = "agent.resume"
	ActionWorkerDrain  = "worker.drain"
	ActionWorkerResume = "worker.resume"

	ActionJobStart = "job.start"
	ActionJobStop  = "job.stop"

	ActionSchedulePause  = "schedule.pause"
	ActionScheduleResume = "schedule.resume"
	ActionScheduleRun    = "schedule.run"
	ActionScheduleRefuse = "schedule.refuse"

	ActionTenantLeave  = "tenant.leave"
	ActionTenantExport = "tenant.export"
	ActionTenantImport = "tenant.import"
	ActionTenantReopen = "tenant.reopen"
	ActionTenantForget = "tenant.forget"

	ActionViewSave   = "view.save"
	ActionViewRemove = "view.remove"
)

// Record adds an action to the audit log.
func (s *Store) Record(ctx context.Context, a Action) error {
	_, err := db.Repeat(ctx, s.db, func(int) (struct{}, error) {
		return db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (struct{}, error) {
			return struct{}{}, Record(ctx, tx, a)
		})
	})
	if err != nil {
		return fmt.Errorf("record %s: %w", a.Name, err)
	}
	return nil
}

// By says who acts through a server, and why. The record of an action names them instead of the server.
type By struct {
	Actor  string // as in Action
	Reason string // may be empty
	Job    a2a.ID // the bulk job that does it; zero: none
}

type byKey struct{}

// ActingBy returns a context for the actions of a person. Statements of
// several callers that are combined into one transaction do not have it: see Attributed.
func ActingBy(ctx context.Context, by By) context.Context { return context.WithValue(ctx, byKey{}, by) }

// Acting reports whether a person acts through a server. A message is then no message of the owner, and is recorded.
func Acting(ctx context.Context) bool {
	_, ok := ctx.Value(byKey{}).(By)
	return ok
}

// Attributed returns the action with the actor and the reason of ctx, where it has none of its own.
func (a Action) Attributed(ctx context.Context) Action {
	by, ok := ctx.Value(byKey{}).(By)
	if !ok {
		return a
	}
	a.Actor = cmp.Or(a.Actor, by.Actor)
	if by.Reason == "" && by.Job.IsZero() {
		return a
	}
	if a.Detail = maps.Clone(a.Detail); a.Detail == nil {
		a.Detail = make(map[string]any, 2)
	}
	if _, given := a.Detail["reason"]; by.Reason != "" && !given {
		a.Detail["reason"] = by.Reason
	}
	if !by.Job.IsZero() {
		a.Detail["job"] = by.Job.String()
	}
	return a
}

// Record adds an action in a transaction.
func Record(ctx context.Context, tx *db.Tx, a Action) error {
	q := dbsqlc.New(tx)
	a = a.Attributed(ctx)
	if a.Actor == "" {
		a.Actor = tx.Actor()
	}
	detail := []byte("{}")
	if len(a.Detail) > 0 {
		var err error
		if detail, err = json.Marshal(a.Detail); err != nil {
			return fmt.Errorf("detail: %w", err)
		}
	}
	return q.ActionInsert(ctx, dbsqlc.ActionInsertParams{
		Actor: a.Actor, Action: a.Name, Tenant: a.Tenant, Owner: a.Owner,
		TaskID: pgtype.UUID{Bytes: a.Task, Valid: !a.Task.IsZero()}, Detail: detail,
	})
}

// Recorded is an action in the log.
type Recorded struct {
	ID     int64
	At     time.Time
	Actor  string
	Name   string
	Tenant string
	Owner  string
	Task   a2a.ID
	Detail json.RawMessage
}

// ActionFilter selects actions; zero values select all.
type ActionFilter struct {
	Task         a2a.ID
	Name         string
	Tenant       string
	Actor        string // the beginning of it
	Since, Until time.Time
	Before       int64 // id: only older ones
	Limit        int
}

// Actions returns recorded actions, newest first.
func (s *Store) Actions(ctx context.Context, f ActionFilter) ([]Recorded, error) {
	read := s.db.Browse
	if !f.Task.IsZero() {
		read = s.db.Lookup
	}
	var rows []dbsqlc.A2aAuditLog
	err := read(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) (err error) {
		q := dbsqlc.New(tx)
		rows, err = q.ActionList(ctx, dbsqlc.ActionListParams{
			TaskID: pgtype.UUID{Bytes: f.Task, Valid: !f.Task.IsZero()}, Action: f.Name, Tenant: f.Tenant,
			Actor: likeLiteral(f.Actor),
			Since: db.PGTime(f.Since), Until: db.PGTime(f.Until), Before: f.Before, Max: int32(f.Limit),
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list actions: %w", err)
	}
	out := make([]Recorded, len(rows))
	for i, r := range rows {
		out[i] = Recorded{
			ID: r.ID, At: r.At.Time.UTC(), Actor: r.Actor, Name: r.Action, Tenant: r.Tenant, Owner: r.Owner,
			Task: r.TaskID.Bytes, Detail: r.Detail,
		}
	}
	return out, nil
}

// likeLiteral escapes text for LIKE.
func likeLiteral(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text)
}
