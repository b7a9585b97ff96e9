package tasks

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// Import is a task that another server has worked on.
//
// Its log is made of what the task shows: it is submitted, each message of the agent is a status, each artifact is an
// event, and the last event is the status. The source of the events is the server, because no worker has written them.
type Import struct {
	db.Caller
	Agent string
	// Task has no time of creation: the task begins at the time of its status. A zero time, or one in the future,
	// becomes the time of the import.
	Task a2a.Task
	// Digest is of what the task was imported from.
	Digest [32]byte
	// Fail ends a task that is submitted or working: it has failed with this message, at the time of the import. nil:
	// the task waits for a worker, which runs the newest message of the client again.
	Fail *a2a.Message
	// Webhooks deliver what happens after the import.
	Webhooks []*webhooks.NewWebhook
}

// ImportOutcome says what Import did with a task.
type ImportOutcome int

// The outcomes of an import.
const (
	ImportStored     ImportOutcome = iota + 1
	ImportKnown                    // it was imported before
	ImportChanged                  // it was imported before, from something else: the source has changed since
	ImportOtherAgent               // it was imported before, for another agent
	ImportIDInUse                  // its id belongs to another task
)

// Import stores tasks in one transaction, and returns what it did with each. A task whose id is in use is not stored,
// so an import can be repeated. The audit log gets one action for each owner, with the name of the source.
func (s *Store) Import(ctx context.Context, source string, list []Import) ([]ImportOutcome, error) {
	items := make([]*importItem, len(list))
	for i := range list {
		it, err := newImportItem(&list[i])
		if err != nil {
			return nil, fmt.Errorf("import: %w", err)
		}
		if it.queued {
			it.lane = s.Lane(ctx, it.Agent, it.Caller)
		}
		items[i] = it
	}
	// Locks are taken in the order of ids.
	sorted := slices.SortedStableFunc(slices.Values(items), func(a, b *importItem) int {
		return bytes.Compare(a.Task.ID[:], b.Task.ID[:])
	})
	outcomes, err := db.Repeat(ctx, s.db, func(int) (map[*importItem]ImportOutcome, error) {
		return db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (map[*importItem]ImportOutcome, error) {
			return s.importIn(ctx, tx, source, sorted)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("import: %w", db.Unavailable(err))
	}
	out := make([]ImportOutcome, len(items))
	for i, it := range items {
		out[i] = outcomes[it]
	}
	return out, nil
}

// Imported returns what Import would do with each task now, and stores nothing.
func (s *Store) Imported(ctx context.Context, list []Import) ([]ImportOutcome, error) {
	items := make([]*importItem, len(list))
	for i := range list {
		items[i] = &importItem{Import: &list[i]}
	}
	var found map[importOwner]dbsqlc.TasksImportedRow
	err := s.db.RepeatRead(ctx, func() (err error) {
		found, err = importsInUse(ctx, dbsqlc.New(s.db.Work()), items)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for imported tasks: %w", db.Unavailable(err))
	}
	out := make([]ImportOutcome, len(items))
	for i, it := range items {
		out[i] = ImportStored
		if row, ok := found[it.owner()]; ok {
			out[i] = it.compare(&row)
		}
	}
	return out, nil
}

func (s *Store) importIn(
	ctx context.Context, tx *db.Tx, source string, items []*importItem,
) (map[*importItem]ImportOutcome, error) {
	now, err := tx.Now(ctx)
	if err != nil {
		return nil, err
	}
	q := dbsqlc.New(tx)
	ids, err := q.TaskImport(ctx, importTasks(items, now))
	if err != nil {
		return nil, err
	}
	stored := make(map[a2a.ID]bool, len(ids))
	for _, id := range ids {
		stored[id.Bytes] = true
	}
	outcomes := make(map[*importItem]ImportOutcome, len(items))
	var fresh, others []*importItem
	for _, it := range items {
		// Of two elements with one id, the first is stored, and the other one is in use.
		if stored[it.Task.ID] {
			delete(stored, it.Task.ID)
			outcomes[it] = ImportStored
			fresh = append(fresh, it)
		} else {
			others = append(others, it)
		}
	}
	if err := storeImports(ctx, tx, fresh, now); err != nil {
		return nil, err
	}
	if err := recordImport(ctx, tx, source, fresh); err != nil {
		return nil, err
	}
	// A second statement, which sees what a concurrent import has committed since.
	found, err := importsInUse(ctx, q, others)
	if err != nil {
		return nil, err
	}
	for _, it := range others {
		row := found[it.owner()]
		outcomes[it] = it.compare(&row)
	}
	if len(fresh) == 0 {
		if err := tx.Confirm(ctx); err != nil {
			return nil, err
		}
	}
	for it, outcome := range outcomes {
		if it.queued && outcome == ImportStored {
			tx.Wake(wake.Ready(it.Agent))
		}
	}
	return outcomes, nil
}

// storeImports stores what belongs to tasks that the transaction has inserted.
func storeImports(ctx context.Context, tx *db.Tx, items []*importItem, now time.Time) error {
	if len(items) == 0 {
		return nil
	}
	q := dbsqlc.New(tx)
	if err := q.ImportEvents(ctx, importEvents(items, now)); err != nil {
		return err
	}
	if err := q.ImportMessages(ctx, importMessages(items)); err != nil {
		return err
	}
	if err := q.ImportKeys(ctx, importKeys(items)); err != nil {
		return err
	}
	for _, it := range items {
		for _, hook := range it.Webhooks {
			if err := webhooks.Set(ctx, tx, webhooks.Setting{
				Owner: it.Caller, Agent: it.Agent, Task: it.Task.ID, Webhook: hook, From: it.lastSeq(),
				Head: it.lastSeq(), Ended: it.state.Terminal(),
			}); err != nil {
				return fmt.Errorf("webhook %q of task %s: %w", hook.ConfigID, it.Task.ID, err)
			}
		}
	}
	return nil
}

// recordImport adds an action for each owner of the tasks.
func recordImport(ctx context.Context, tx *db.Tx, source string, items []*importItem) error {
	byOwner := make(map[db.Caller][]pgtype.UUID)
	var owners []db.Caller
	for _, it := range items {
		if byOwner[it.Caller] == nil {
			owners = append(owners, it.Caller)
		}
		byOwner[it.Caller] = append(byOwner[it.Caller], db.PGID(it.Task.ID))
	}
	for _, o := range owners {
		from, to := span(byOwner[o])
		err := access.Record(ctx, tx, access.Action{
			Name: access.ActionTaskImport, Tenant: o.Tenant, Owner: o.Owner,
			Detail: map[string]any{"tasks": len(byOwner[o]), "from": from, "to": to, "source": source},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// importOwner is an id with the owner that it is imported for. A source may have one id for two owners.
type importOwner struct {
	id            a2a.ID
	tenant, owner string
}

func (it *importItem) owner() importOwner { return importOwner{it.Task.ID, it.Tenant, it.Owner} }

// importsInUse returns those of the tasks whose ids are in use.
func importsInUse(
	ctx context.Context, q *dbsqlc.Queries, items []*importItem,
) (map[importOwner]dbsqlc.TasksImportedRow, error) {
	if len(items) == 0 {
		return nil, nil
	}
	p := dbsqlc.TasksImportedParams{}
	for _, it := range items {
		p.Ids = append(p.Ids, db.PGID(it.Task.ID))
		p.Tenants, p.Owners = append(p.Tenants, it.Tenant), append(p.Owners, it.Owner)
	}
	rows, err := q.TasksImported(ctx, p)
	if err != nil {
		return nil, err
	}
	found := make(map[importOwner]dbsqlc.TasksImportedRow, len(rows))
	for _, r := range rows {
		found[importOwner{r.ID.Bytes, r.Tenant, r.Owner}] = r
	}
	return found, nil
}

// compare says why the id of the task is in use.
func (it *importItem) compare(row *dbsqlc.TasksImportedRow) ImportOutcome {
	switch {
	case row.Digest == nil:
		return ImportIDInUse
	case len(it.events) > 0 && row.EventUid.Bytes == it.events[0].uid:
		return ImportStored // by an earlier try, whose commit was not acknowledged
	case row.Agent != it.Agent:
		return ImportOtherAgent
	case bytes.Equal(row.Digest, it.Digest[:]):
		return ImportKnown
	}
	return ImportChanged
}
