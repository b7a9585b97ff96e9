package main

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/wake"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
)

// dbOperator is the operator on a database. It tells running servers what it changed.
type dbOperator struct {
	store *store.Store
	codec v03.Codec
}

const operatorName = "operator"

// openOperator opens the database at url for the commands of the operator.
func openOperator(ctx context.Context, url string) (operator, error) {
	o := &dbOperator{}
	tell := func(keys ...string) {
		// One payload, as notify.Publisher would send it; a lost one costs a poll interval.
		for _, k := range keys {
			o.store.Notify(context.WithoutCancel(ctx), []string{operatorName + " " + k}) //nolint:errcheck // the servers poll as well
		}
	}
	var err error
	o.store, err = store.Open(ctx, store.Config{
		URL: url, Replica: operatorName, PoolSize: 4, Wake: tell, Actor: actor(),
		Committed: func(task a2a.ID, _ []a2a.Entry) { tell(wake.Task(task)) },
	})
	if err != nil {
		return nil, err
	}
	if err := o.store.CheckSchema(ctx); err != nil {
		o.store.Close()
		return nil, err
	}
	return o, nil
}

// actor is the person at the terminal, for the audit log.
func actor() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return operatorName + " " + name + "@" + host
}

func (o *dbOperator) Close() { o.store.Close() }

func parseTaskID(id string) (a2a.ID, error) {
	t, err := a2a.ParseID(id)
	if err != nil {
		return t, fmt.Errorf("task %s: not a task id", id)
	}
	return t, nil
}

func (o *dbOperator) Tasks(ctx context.Context, f taskFilter) ([]taskRow, error) {
	in := store.TaskFilter{Tenant: f.Tenant, Owner: f.Owner, Agent: f.Agent, ContextID: f.ContextID, States: f.States, Prefix: f.Prefix, Since: f.Since, Until: f.Until, Limit: f.Limit}
	if f.Before != "" {
		var err error
		if in.Before, err = parseTaskID(f.Before); err != nil {
			return nil, err
		}
	}
	found, err := o.store.ListTasks(ctx, in)
	if err != nil {
		return nil, err
	}
	rows := make([]taskRow, len(found))
	for i := range found {
		rows[i] = newTaskRow(&found[i])
	}
	return rows, nil
}

func newTaskRow(t *store.TaskRow) taskRow {
	return taskRow{
		ID: t.ID.String(), State: t.State.String(), Agent: t.Agent, Tenant: t.Tenant, Owner: t.Owner, ContextID: t.ContextID,
		CreatedAt: t.CreatedAt, UpdatedAt: t.StatusAt, Events: t.LastSeq, Attempt: t.Attempt, Epoch: t.Epoch, Worker: t.Worker,
		LeaseUntil: orNil(t.LeaseUntil), ReadyAt: orNil(t.ReadyAt),
	}
}

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (o *dbOperator) row(ctx context.Context, id string) (a2a.ID, taskRow, error) {
	t, err := parseTaskID(id)
	if err != nil {
		return t, taskRow{}, err
	}
	found, err := o.store.ListTasks(ctx, store.TaskFilter{ID: t, Limit: 1})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("task %s: %w", id, a2a.ErrTaskNotFound)
	}
	if err != nil {
		return t, taskRow{}, err
	}
	return t, newTaskRow(&found[0]), nil
}

func (o *dbOperator) Task(ctx context.Context, id string) (taskDetail, error) {
	t, row, err := o.row(ctx, id)
	if err != nil {
		return taskDetail{}, err
	}
	task, err := o.store.SnapshotOfAny(ctx, t, store.Want{Artifacts: true})
	if err != nil {
		return taskDetail{}, err
	}
	happened, err := o.store.Timeline(ctx, t)
	if err != nil {
		return taskDetail{}, err
	}
	d := taskDetail{taskRow: row, Attempts: []attemptRow{}, Timeline: newTimeline(row.Tenant+"/"+row.Owner, happened), Raw: o.codec.AppendTask(nil, task), Task: *task}
	for _, a := range happened.Attempts {
		d.Attempts = append(d.Attempts, attemptRow{
			Epoch: a.Epoch, Attempt: a.Attempt, Worker: a.Worker, ClaimedAt: a.ClaimedAt, EndedAt: orNil(a.EndedAt), Outcome: a.Outcome, Error: a.Error,
		})
	}
	return d, nil
}

const watchPoll = 250 * time.Millisecond

// Watch follows the log by polling it: an operator's terminal needs no wakes.
func (o *dbOperator) Watch(ctx context.Context, id string, after int64) iter.Seq2[watched, error] {
	return func(yield func(watched, error) bool) {
		t, err := parseTaskID(id)
		if err != nil {
			yield(watched{}, err)
			return
		}
		task, err := o.store.SnapshotOfAny(ctx, t, store.Want{Artifacts: true})
		if err != nil {
			yield(watched{}, fmt.Errorf("task %s: %w", id, err))
			return
		}
		pruned, err := o.pruned(ctx, t, max(after, 0))
		if err != nil {
			yield(watched{}, err)
			return
		}
		if after <= 0 || pruned || after >= task.LastSeq && task.Status.State.Terminal() { // nothing comes behind the end
			if !yield(o.snapshot(task), nil) || task.Status.State.Terminal() {
				return
			}
			after = task.LastSeq
		}
		o.follow(ctx, task, min(after, task.LastSeq), yield)
	}
}

func (o *dbOperator) snapshot(task *a2a.Task) watched {
	return watched{ID: sse.FormatID(task.LastSeq, task.LastUID.Short()), Raw: o.codec.AppendSnapshot(nil, task), Snapshot: task}
}

// pruned reports whether retention has removed what comes behind an event.
func (o *dbOperator) pruned(ctx context.Context, id a2a.ID, after int64) (bool, error) {
	next, err := o.store.EventsAfter(ctx, id, after, 1)
	if err != nil {
		return false, fmt.Errorf("task %s: %w", id, err)
	}
	return len(next) == 1 && next[0].Seq > after+1, nil
}

func (o *dbOperator) follow(ctx context.Context, task *a2a.Task, after int64, yield func(watched, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	follower := stream.New(o.store, &notify.Hub{}, watchPoll, slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() {
		defer close(done)
		follower.Run(ctx) //nolint:errcheck // it only returns nil
	}()
	cursor := follower.Follow(task.ID, task.ContextID, after, task.LastSeq)
	defer func() { cursor.Close(); cancel(); <-done }()
	for {
		items, err := cursor.Next(ctx)
		if err != nil {
			yield(watched{}, fmt.Errorf("task %s: %w", task.ID, err))
			return
		}
		for _, it := range items {
			ended := it.State().Terminal()
			w := watched{ID: sse.FormatID(it.Seq, it.UID.Short()), Raw: o.codec.AppendEvent(nil, &it.Entry, ended), Entry: &it.Entry}
			if !yield(w, nil) || ended {
				return
			}
		}
	}
}

func (o *dbOperator) Cancel(ctx context.Context, id string) (taskRow, error) {
	t, err := parseTaskID(id)
	if err != nil {
		return taskRow{}, err
	}
	owner, err := o.store.Owner(ctx, t)
	if err != nil {
		return taskRow{}, fmt.Errorf("task %s: %w", id, err)
	}
	if _, err := o.store.Cancel(ctx, owner, "", t); err != nil {
		return taskRow{}, fmt.Errorf("task %s: %w", id, err)
	}
	_, row, err := o.row(ctx, id)
	return row, err
}

func (o *dbOperator) Retry(ctx context.Context, id string) (retriedTask, error) {
	old, err := parseTaskID(id)
	if err != nil {
		return retriedTask{}, err
	}
	made, err := o.store.RetryTask(ctx, old)
	if err != nil {
		return retriedTask{}, fmt.Errorf("task %s: %w", id, err)
	}
	return retriedTask{ID: made.Task.String(), Of: old.String(), ContextID: made.ContextID, State: made.State.String()}, nil
}

func (f *purgeFilter) parse() (in store.PurgeFilter, err error) {
	in = store.PurgeFilter{Tenant: f.Tenant, Owner: f.Owner, ContextID: f.ContextID}
	if f.ID != "" {
		in.Task, err = parseTaskID(f.ID)
	}
	return in, err
}

func (o *dbOperator) CountPurge(ctx context.Context, f purgeFilter) (int64, error) {
	in, err := f.parse()
	if err != nil {
		return 0, err
	}
	return o.store.CountPurge(ctx, in)
}

func (o *dbOperator) Purge(ctx context.Context, f purgeFilter) (int, error) {
	in, err := f.parse()
	if err != nil {
		return 0, err
	}
	return o.store.Purge(ctx, in)
}

func (o *dbOperator) Overview(ctx context.Context) (*store.Overview, error) {
	return o.store.Overview(ctx)
}

func (o *dbOperator) Actions(ctx context.Context, f actionFilter) ([]actionRow, error) {
	in := store.ActionFilter{Name: f.Name, Tenant: f.Tenant, Actor: f.Actor, Since: f.Since, Until: f.Until, Before: f.Before, Limit: f.Limit}
	if f.Task != "" {
		var err error
		if in.Task, err = parseTaskID(f.Task); err != nil {
			return nil, err
		}
	}
	found, err := o.store.Actions(ctx, in)
	if err != nil {
		return nil, err
	}
	rows := make([]actionRow, len(found))
	for i, a := range found {
		rows[i] = actionRow{ID: a.ID, At: a.At, Actor: a.Actor, Action: a.Name, Tenant: a.Tenant, Owner: a.Owner, Detail: a.Detail}
		if !a.Task.IsZero() {
			rows[i].TaskID = a.Task.String()
		}
	}
	return rows, nil
}

func (o *dbOperator) CreateKey(ctx context.Context, k keySpec) (createdKey, error) {
	key, err := auth.NewKey(k.Env, nil)
	if err != nil {
		return createdKey{}, err
	}
	made, err := o.store.CreateAPIKey(ctx, store.APIKey{
		ID: key.ID(), Tenant: k.Tenant, Owner: k.Owner, Name: k.Name, Scopes: k.Scopes, Agents: k.Agents,
	}, key.SecretHash(), k.ExpiresIn)
	if err != nil {
		return createdKey{}, err
	}
	return createdKey{
		ID: key.ID(), Key: key.Reveal(), Tenant: k.Tenant, Owner: k.Owner, Name: k.Name, Scopes: k.Scopes, Agents: k.Agents,
		CreatedAt: made.CreatedAt, ExpiresAt: orNil(made.ExpiresAt),
	}, nil
}

func (o *dbOperator) Keys(ctx context.Context, tenant string) ([]keyRow, error) {
	keys, err := o.store.APIKeys(ctx)
	if err != nil {
		return nil, err
	}
	rows := []keyRow{}
	for _, k := range keys {
		if tenant == "" || k.Tenant == tenant {
			rows = append(rows, newKeyRow(k))
		}
	}
	return rows, nil
}

func newKeyRow(k store.APIKey) keyRow {
	return keyRow{
		ID: k.ID, Tenant: k.Tenant, Owner: k.Owner, Name: k.Name, Scopes: k.Scopes, Agents: k.Agents, CreatedAt: k.CreatedAt,
		LastUsedAt: orNil(k.UsedAt), ExpiresAt: orNil(k.ExpiresAt), RevokedAt: orNil(k.RevokedAt),
	}
}

func (o *dbOperator) RevokeKey(ctx context.Context, id string) (keyRow, error) {
	if err := o.store.RevokeAPIKey(ctx, id); err != nil {
		return keyRow{}, fmt.Errorf("key %s: %w", id, err)
	}
	keys, err := o.store.APIKeys(ctx)
	if err != nil {
		return keyRow{}, err
	}
	i := slices.IndexFunc(keys, func(k store.APIKey) bool { return k.ID == id })
	if i < 0 {
		return keyRow{}, fmt.Errorf("key %s: %w", id, store.ErrNoKey)
	}
	return newKeyRow(keys[i]), nil
}
