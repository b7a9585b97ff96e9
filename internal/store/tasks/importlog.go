package tasks

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// importItem is a task to import, with the log and the messages that are made of it.
type importItem struct {
	*Import
	events   []importEvent
	messages []importMessage
	state    a2a.State // of the last status
	lane     int16
	queued   bool // a worker is to run it

	statusMessage     int64 // the message of the last status; 0: there is none
	lastUser, read    int64 // messages of the client: the newest, and the newest that needs no run
	size              int64
	hasArtifacts, now bool // now: the last event is of the time of the import
}

// importEvent is event number len of its task.
type importEvent struct {
	eventRow
	uid a2a.ID
}

// importMessage is a message, and the first event whose snapshot shows it.
type importMessage struct {
	id   string
	role a2a.Role
	at   int64
	body []byte
}

func newImportItem(in *Import) (*importItem, error) {
	it := &importItem{Import: in}
	t := &in.Task
	if !t.Status.State.Valid() {
		return nil, fmt.Errorf("task %s has no state", t.ID)
	}
	it.status(a2a.StateSubmitted, nil)
	for i := range t.History {
		if m := &t.History[i]; m.Role == a2a.RoleUser {
			it.said(m)
		} else {
			it.status(a2a.StateWorking, m)
		}
	}
	for i := range t.Artifacts {
		it.artifact(&t.Artifacts[i])
	}
	last := t.Status
	if last.State != a2a.StateSubmitted || last.Message != nil || it.state != a2a.StateSubmitted {
		// A task that is submitted again, and one with a message, is working: a log is submitted once, without a
		// question.
		if last.State == a2a.StateSubmitted {
			last.State = a2a.StateWorking
		}
		it.status(last.State, last.Message)
	}
	if !it.state.EndsTurn() && in.Fail != nil {
		it.status(a2a.StateFailed, in.Fail)
		it.now = true
	}
	it.settle()
	return it, nil
}

// settle sets what depends on the whole log.
func (it *importItem) settle() {
	for i := range it.messages {
		m := &it.messages[i]
		// The newest message of the client may have no event after it.
		m.at = min(m.at, it.lastSeq())
		if m.role == a2a.RoleUser {
			it.read, it.lastUser = it.lastUser, int64(i+1)
		}
	}
	it.queued = !it.state.EndsTurn()
	if !it.queued {
		it.read = it.lastUser
	}
}

func (it *importItem) lastSeq() int64 { return int64(len(it.events)) }

func (it *importItem) status(s a2a.State, m *a2a.Message) {
	it.state, it.statusMessage = s, 0
	it.event(&a2a.StatusUpdate{Status: a2a.Status{State: s, Message: m}})
	if m != nil {
		it.message(m, a2a.RoleAgent, it.lastSeq())
		it.statusMessage = int64(len(it.messages))
	}
}

func (it *importItem) artifact(a *a2a.Artifact) {
	it.hasArtifacts = true
	it.event(&a2a.ArtifactUpdate{Artifact: *a, LastChunk: true})
}

func (it *importItem) event(e a2a.Event) {
	row, err := encodeEvent(e)
	if err != nil {
		panic(err) // these types of events can be encoded
	}
	it.events = append(it.events, importEvent{row, db.NewUID()})
	it.size += int64(len(row.body) + len(row.parts))
}

// said adds a message of the client. The first one shows with the submission, others with the event that follows.
func (it *importItem) said(m *a2a.Message) {
	at := it.lastSeq() + 1
	if len(it.messages) == 0 {
		at = 1
	}
	it.message(m, a2a.RoleUser, at)
}

func (it *importItem) message(m *a2a.Message, role a2a.Role, at int64) {
	as := *m
	as.Role = role
	body := appendMessage(nil, &as)
	it.messages = append(it.messages, importMessage{m.ID, role, at, body})
	it.size += int64(len(body))
}

// times returns when the task began and when it got its last event.
func (it *importItem) times(now time.Time) (began, last time.Time) {
	began = it.Task.Status.Time
	if began.IsZero() || began.After(now) {
		began = now
	}
	if began = began.Truncate(time.Millisecond); it.now {
		return began, now
	}
	return began, began
}

func importTasks(items []*importItem, now time.Time) dbsqlc.TaskImportParams {
	p := dbsqlc.TaskImportParams{Now: db.PGTime(now)}
	for _, it := range items {
		began, last := it.times(now)
		p.Ids, p.Tenants = append(p.Ids, db.PGID(it.Task.ID)), append(p.Tenants, it.Tenant)
		p.Owners, p.Agents = append(p.Owners, it.Owner), append(p.Agents, it.Agent)
		p.ContextIds, p.States = append(p.ContextIds, it.Task.ContextID), append(p.States, int16(it.state))
		p.CreatedAt, p.LastAt = append(p.CreatedAt, db.PGTime(began)), append(p.LastAt, db.PGTime(last))
		p.StatusMessageSeqs = append(p.StatusMessageSeqs, it.statusMessage)
		p.LastSeqs = append(p.LastSeqs, it.lastSeq())
		p.LastMessageSeqs = append(p.LastMessageSeqs, int64(len(it.messages)))
		p.LastUserSeqs, p.ReadUserSeqs = append(p.LastUserSeqs, it.lastUser), append(p.ReadUserSeqs, it.read)
		p.HasArtifacts, p.Sizes = append(p.HasArtifacts, it.hasArtifacts), append(p.Sizes, it.size)
		p.Metadata, p.Lanes = append(p.Metadata, it.Task.Metadata), append(p.Lanes, it.lane)
		p.Queued = append(p.Queued, it.queued)
	}
	return p
}

func importEvents(items []*importItem, now time.Time) (p dbsqlc.ImportEventsParams) {
	for _, it := range items {
		began, last := it.times(now)
		for i := range it.events {
			e, at := &it.events[i], began
			if i == len(it.events)-1 {
				at = last
			}
			p.TaskIds, p.Seqs = append(p.TaskIds, db.PGID(it.Task.ID)), append(p.Seqs, int64(i+1))
			p.EventUids, p.Kinds = append(p.EventUids, db.PGID(e.uid)), append(p.Kinds, e.kind)
			p.States, p.Ats = append(p.States, e.state), append(p.Ats, db.PGTime(at))
			p.ArtifactIds = append(p.ArtifactIds, e.artifactID)
			p.Bodies, p.Parts = append(p.Bodies, e.body), append(p.Parts, e.parts)
		}
	}
	return p
}

func importMessages(items []*importItem) (p dbsqlc.ImportMessagesParams) {
	for _, it := range items {
		for i := range it.messages {
			m := &it.messages[i]
			p.TaskIds, p.Seqs = append(p.TaskIds, db.PGID(it.Task.ID)), append(p.Seqs, int64(i+1))
			p.AtSeqs, p.MessageIds = append(p.AtSeqs, m.at), append(p.MessageIds, m.id)
			p.Roles, p.Bodies = append(p.Roles, int16(m.role)), append(p.Bodies, m.body)
		}
	}
	return p
}

func importKeys(items []*importItem) dbsqlc.ImportKeysParams {
	n := len(items)
	p := dbsqlc.ImportKeysParams{
		Tenants: make([]string, n), Owners: make([]string, n), Digests: make([][]byte, n),
		TaskIds: make([]pgtype.UUID, n),
	}
	for i, it := range items {
		p.Tenants[i], p.Owners[i], p.Digests[i] = it.Tenant, it.Owner, it.Digest[:]
		p.TaskIds[i] = db.PGID(it.Task.ID)
	}
	return p
}
