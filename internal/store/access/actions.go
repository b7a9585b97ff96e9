package access

import (
	"context"
	"encoding/json"
	"fmt"
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
	ActionTaskPurge    = "task.purge"
	ActionTaskRetire   = "task.retire"
	ActionLogPrune     = "log.prune"
	ActionAuditRetire  = "audit.retire"
	ActionPushReplay   = "push.replay"
	ActionPushEnable   = "push.enable"
	ActionPushDisable  = "push.disable"
	ActionConfigReload = "config.reload"

	ActionSchedulePause  = "schedule.pause"
	ActionScheduleResume = "schedule.resume"
	ActionScheduleRun    = "schedule.run"
	ActionScheduleRefuse = "schedule.refuse"
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

// Record adds an action in a transaction.
func Record(ctx context.Context, tx *db.Tx, a Action) error {
	q := dbsqlc.New(tx)
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
	var rows []dbsqlc.A2aAuditLog
	err := s.db.Search(ctx, func(tx *db.Tx) (err error) {
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
