package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// Want says how much of a task to read. History nil means all of it.
type Want struct {
	History   *int
	Artifacts bool
	// Most is how many bytes the tasks may take together; 0: no limit. If they may take more, the read fails with a
	// TooMuch.
	Most int64
}

// TooMuch is the error of a read of tasks that may take more memory than Want permits.
type TooMuch struct{ Bytes int64 } // that they take at most

func (e *TooMuch) Error() string { return fmt.Sprintf("the tasks may take %d bytes", e.Bytes) }

// within returns an error if the tasks of the rows may take more memory than Most.
func (w *Want) within(rows []dbsqlc.TaskSnapshotsRow) error {
	if w.Most <= 0 {
		return nil
	}
	var sum int64
	for i := range rows {
		sum += rows[i].Cost
	}
	if sum > w.Most {
		return &TooMuch{sum}
	}
	return nil
}

// Sizes estimates how many bytes each of these tasks takes when it is read, in the order of ids; 0 for one that does
// not exist. The caller has checked that the client may see the tasks.
func (s *Store) Sizes(ctx context.Context, c db.Caller, ids []a2a.ID, w Want) ([]int64, error) {
	p := dbsqlc.TaskSizesParams{Ids: db.PGIDs(ids), History: w.messages(), Artifacts: w.Artifacts}
	var rows []dbsqlc.TaskSizesRow
	err := s.db.RepeatRead(ctx, func() (err error) {
		rows, err = dbsqlc.New(s.db.As(c, ids...)).TaskSizes(ctx, p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("measure tasks: %w", err)
	}
	sizes := make([]int64, len(ids))
	for i, id := range ids {
		for _, r := range rows {
			if r.ID.Bytes == id {
				sizes[i] = r.Bytes
			}
		}
	}
	return sizes, nil
}

const allHistory = int64(1) << 60

// Snapshots reads tasks of the caller as of one moment, in the order of ids. Tasks that do not exist, or belong to
// another owner, are missing.
func (s *Store) Snapshots(ctx context.Context, c db.Caller, ids []a2a.ID, w Want) ([]a2a.Task, error) {
	read, err := s.snapshots(ctx, dbsqlc.New(s.db.As(c, ids...)), ids, w)
	if err != nil {
		return nil, err
	}
	tasks := make([]a2a.Task, 0, len(ids))
	for _, id := range ids {
		if b := read[id]; b != nil {
			tasks = append(tasks, *b.task)
		}
	}
	return tasks, nil
}

func (s *Store) snapshots(
	ctx context.Context, q *dbsqlc.Queries, ids []a2a.ID, w Want,
) (map[a2a.ID]*taskBuilder, error) {
	p := dbsqlc.TaskSnapshotsParams{
		Ids: db.PGIDs(ids), Most: max(w.Most, 0), History: w.messages(), Artifacts: w.Artifacts,
	}
	var rows []dbsqlc.TaskSnapshotsRow
	err := s.db.RepeatRead(ctx, func() (err error) {
		rows, err = q.TaskSnapshots(ctx, p)
		return err
	})
	if err == nil {
		err = w.within(rows)
	}
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	return build(rows, w), nil
}

// build makes tasks of their rows, which may be in any order.
func build(rows []dbsqlc.TaskSnapshotsRow, w Want) map[a2a.ID]*taskBuilder {
	read := make(map[a2a.ID]*taskBuilder)
	for i := range rows {
		if r := &rows[i]; r.Part == 0 {
			read[r.TaskID.Bytes] = &taskBuilder{task: &a2a.Task{ID: r.TaskID.Bytes}}
		}
	}
	each := func(do func(b *taskBuilder, r *dbsqlc.TaskSnapshotsRow)) {
		var b *taskBuilder
		for i := range rows {
			r := &rows[i]
			if b == nil || b.task.ID != r.TaskID.Bytes {
				b = read[r.TaskID.Bytes]
			}
			do(b, r)
		}
	}
	ordered := true
	each(func(b *taskBuilder, r *dbsqlc.TaskSnapshotsRow) { // rows of other tasks may come between
		ordered = ordered && (b.newest == nil || order(b.newest, r) <= 0)
		b.newest = r
	})
	if !ordered {
		slices.SortFunc(rows, func(a, b dbsqlc.TaskSnapshotsRow) int { return order(&a, &b) })
	}
	each(func(b *taskBuilder, r *dbsqlc.TaskSnapshotsRow) {
		b.add(r)
		r.Body, r.Parts = nil, nil // their text was copied, so a large task is not in memory twice
	})
	if w.History != nil {
		for _, b := range read {
			b.task.History = b.task.History[max(len(b.task.History)-*w.History, 0):]
		}
	}
	return read
}

func (w *Want) messages() int64 {
	if w.History == nil {
		return allHistory
	}
	return int64(*w.History)
}

// Snapshot reads one task of the caller, or returns a2a.ErrTaskNotFound.
func (s *Store) Snapshot(ctx context.Context, c db.Caller, id a2a.ID, w Want) (*a2a.Task, error) {
	return s.snapshot(ctx, dbsqlc.New(s.db.As(c, id)), id, w)
}

// SnapshotOfAny reads one task of any owner, for the operator, or returns a2a.ErrTaskNotFound.
func (s *Store) SnapshotOfAny(ctx context.Context, id a2a.ID, w Want) (*a2a.Task, error) {
	return s.snapshot(ctx, dbsqlc.New(s.db.Reads()), id, w)
}

func (s *Store) snapshot(ctx context.Context, q *dbsqlc.Queries, id a2a.ID, w Want) (*a2a.Task, error) {
	read, err := s.snapshots(ctx, q, []a2a.ID{id}, w)
	if err != nil {
		return nil, err
	}
	if read[id] == nil {
		return nil, a2a.ErrTaskNotFound
	}
	return read[id].task, nil
}

// SnapshotAt reads one task as it was when event seq was its newest one, or returns a2a.ErrTaskNotFound if it has no
// such event. The answer never changes. At the newest event it is what Snapshot returns, without messages that the
// client has sent since: they show from the next event on. The caller has checked that the client may see the task.
func (s *Store) SnapshotAt(ctx context.Context, id a2a.ID, seq int64, w Want) (*a2a.Task, error) {
	read, err := s.SnapshotsAt(ctx, []Moment{{Task: id, Seq: seq}}, w)
	if err != nil {
		return nil, err
	}
	return read[0].Task, read[0].Err
}

// Moment is a task as it was when event Seq was its newest one.
type Moment struct {
	Task a2a.ID
	Seq  int64
}

// Snapshot is the result of reading one of several tasks.
type Snapshot struct {
	Task *a2a.Task
	Err  error // a TooMuch, or a2a.ErrTaskNotFound
}

// SnapshotsAt is SnapshotAt for different tasks, in the order of at. Want.Most limits each of them.
func (s *Store) SnapshotsAt(ctx context.Context, at []Moment, w Want) ([]Snapshot, error) {
	p := dbsqlc.TasksSnapshotAtParams{
		Ids: make([]pgtype.UUID, len(at)), Seqs: make([]int64, len(at)),
		Most: max(w.Most, 0), History: w.messages(), Artifacts: w.Artifacts,
	}
	for i, m := range at {
		p.Ids[i], p.Seqs[i] = db.PGID(m.Task), m.Seq
	}
	var rows []dbsqlc.TaskSnapshotsRow
	err := s.db.RepeatRead(ctx, func() error {
		found, err := dbsqlc.New(s.db.Reads()).TasksSnapshotAt(ctx, p)
		rows = make([]dbsqlc.TaskSnapshotsRow, len(found))
		for i := range found {
			rows[i] = dbsqlc.TaskSnapshotsRow(found[i])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read tasks as they were: %w", err)
	}
	costs := make(map[a2a.ID]int64, len(at))
	for i := range rows {
		costs[rows[i].TaskID.Bytes] += rows[i].Cost
	}
	read := build(rows, w)
	out := make([]Snapshot, len(at))
	for i, m := range at {
		switch b := read[m.Task]; {
		case b == nil:
			out[i].Err = a2a.ErrTaskNotFound
		case w.Most > 0 && costs[m.Task] > w.Most:
			out[i].Err = fmt.Errorf("read task at %d: %w", m.Seq, &TooMuch{costs[m.Task]})
		default:
			out[i].Task = b.task
		}
	}
	return out, nil
}

// order compares rows of a task by the order in which a taskBuilder needs them.
func order(a, b *dbsqlc.TaskSnapshotsRow) int {
	return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Idx, b.Idx))
}

// taskBuilder makes one task of its rows.
type taskBuilder struct {
	newest    *dbsqlc.TaskSnapshotsRow // while build checks their order
	task      *a2a.Task
	statusSeq int64
	user      []userMessage
}

// userMessage is the position of a client's message in the history of a task.
type userMessage struct {
	seq int64
	at  int
}

func (b *taskBuilder) add(r *dbsqlc.TaskSnapshotsRow) {
	t := b.task
	switch r.Part {
	case 0:
		t.Agent, t.ContextID, t.Metadata, t.CreatedAt = r.Agent, r.Name, r.Body, db.WireTime(r.CreatedAt)
		t.Status = a2a.Status{State: a2a.State(r.State), Time: db.WireTime(r.At)}
		t.LastSeq, t.LastUID = r.Seq, r.Uid.Bytes
		b.statusSeq, t.Replied = r.Idx, r.Replied
	case 1:
		m := DecodeMessage(r.Body, a2a.Role(r.State))
		if r.Seq == b.statusSeq {
			t.Status.Message = &m
			return
		}
		if m.Role == a2a.RoleUser {
			b.user = append(b.user, userMessage{r.Seq, len(t.History)})
		}
		t.History = append(t.History, m)
	case 2:
		t.Artifacts = append(t.Artifacts, decodeArtifact(r.Name, r.Body).Artifact)
	case 3:
		if i := a2a.FindArtifact(t.Artifacts, r.Name); i >= 0 {
			t.Artifacts[i].Parts = append(t.Artifacts[i].Parts, decodePart(r.Body))
		}
	case 4:
		u := decodeArtifact(r.Name, r.Body)
		u.Artifact.Parts, u.Append = decodeParts(r.Parts), r.State == kindChunk
		t.Artifacts = a2a.Fold(t.Artifacts, &u)
	}
}

// Input is what a run starts from.
type Input struct {
	Task     a2a.Task
	Messages []a2a.Message    // of the client, that no finished turn has read; oldest first
	Steps    []a2a.StepRecord // the first ones, as many as StepsFirst allows
}

// StepsFirst is the page of steps that a run starts with.
var StepsFirst = StepsPage{Max: 1000, Bytes: 1 << 20}

// Inputs reads what the runs of leases start from, in their order. A run sees the client's
// messages up to the newest one of the moment of its claim.
func (s *Store) Inputs(ctx context.Context, leases []Lease) ([]Input, error) {
	ids := make([]a2a.ID, len(leases))
	for i := range leases {
		ids[i] = leases[i].TaskID
	}
	read, err := s.snapshots(ctx, dbsqlc.New(s.db.Work()), ids, Want{Artifacts: true})
	// not CodeUnavailable: a task that is too large to read in time would be retried for ever
	if db.IsCode(err, "57014") {
		return nil, errors.New("read tasks: the statement took too long")
	}
	if err != nil {
		return nil, db.UnavailableToRun(err)
	}
	in := make([]Input, len(leases))
	for i, l := range leases {
		b := read[l.TaskID]
		if b == nil {
			return nil, fmt.Errorf("read task %s: %w", l.TaskID, a2a.ErrTaskNotFound)
		}
		in[i].Task = *b.task
		for _, m := range b.user {
			if m.seq > l.Through { // only the client has sent messages since the claim
				in[i].Task.History = b.task.History[:m.at:m.at]
				break
			}
			if m.seq > l.Read {
				in[i].Messages = append(in[i].Messages, b.task.History[m.at])
			}
		}
		if l.Steps == 0 {
			continue
		}
		if in[i].Steps, err = s.Steps(ctx, l.TaskID, StepsFirst); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// Filter selects tasks of a caller for a page. BeforeAt and BeforeID are the position of the
// last task of the page before; zero for the first page.
type Filter struct {
	Agent     string
	ContextID string
	State     a2a.State
	Since     time.Time
	BeforeAt  time.Time
	BeforeID  a2a.ID
	Limit     int
}

// Position is the place of a task in the list of its owner.
type Position struct {
	ID a2a.ID
	At time.Time
}

// Page returns the positions of up to f.Limit tasks of the caller, newest status first, and
// how many there are over all pages.
func (s *Store) Page(ctx context.Context, c db.Caller, f Filter) ([]Position, Total, error) {
	p := dbsqlc.TaskPageForCallerParams{
		Tenant: c.Tenant, Owner: c.Owner, Shared: c.Shared, Agent: f.Agent, ContextID: f.ContextID,
		State: int16(f.State),
		Since: db.PGTime(f.Since), BeforeAt: db.PGTime(f.BeforeAt), BeforeID: db.PGID(f.BeforeID), Max: int32(f.Limit),
	}
	if f.Since.IsZero() {
		p.Since = pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	if f.BeforeAt.IsZero() {
		p.BeforeAt = pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	}
	var rows []dbsqlc.TaskPageForCallerRow
	err := s.db.RepeatRead(ctx, func() error {
		return s.db.SearchAs(ctx, c, func(tx *db.Tx) (err error) {
			q := dbsqlc.New(tx)
			rows, err = q.TaskPageForCaller(ctx, p)
			return err
		})
	})
	if err != nil {
		return nil, Total{}, fmt.Errorf("list tasks: %w", err)
	}
	page := make([]Position, len(rows))
	for i, r := range rows {
		page[i] = Position{ID: r.ID.Bytes, At: r.StatusAt.Time.UTC()}
	}
	if f.BeforeAt.IsZero() && len(rows) < f.Limit {
		return page, Total{N: len(rows)}, nil // these are all
	}
	total := s.total(ctx, c, f, dbsqlc.TaskCountForCallerParams{
		Tenant: c.Tenant, Owner: c.Owner, Shared: c.Shared, Agent: f.Agent, ContextID: f.ContextID,
		State: int16(f.State), Since: p.Since,
	})
	total.N = max(total.N, len(rows))
	return page, total, nil
}
