package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
)

// TaskSearch selects tasks for an operator. Zero values select all.
type TaskSearch struct {
	ID                       a2a.ID
	Prefix                   string   // of the id, as people type it
	IDs                      []a2a.ID // any of them; nil: all
	Tenant, Owner, ContextID string
	Agents                   []string // tasks of any of them; nil: of all agents
	States                   []a2a.State
	Since, Until             time.Time // created in this time
	Parked                   bool      // only those that are parked
	Roots                    bool      // only those that no other task has called
	NotRetried               bool      // only those that no task was made from
	Outcome                  string    // only those with an attempt that ended so
	Text                     string    // in a text of the first message, in upper or lower case
	Error                    string    // in the error of an attempt or of the task, in upper or lower case
	MetadataKey              string    // a member of the metadata of the task or of its first message, at any depth
	After                    Position  // only those after it
	Limit                    int
	Timeout                  time.Duration // of the search
}

// Position is the position of a task in a list that begins with the newest task.
type Position struct {
	CreatedAt time.Time // zero: the beginning
	ID        a2a.ID
}

// FoundTask is a task that a search has found.
type FoundTask struct {
	TaskRow
	Error    string // with which it failed or was rejected; else of its newest attempt; may be empty
	Question string // the message with which it asks; may be empty
}

// ErrSearchTooLong says that a search was given up because it took longer than its timeout.
var ErrSearchTooLong = &a2a.Error{
	Code:    a2a.CodeUnavailable,
	Message: "the search took too long: narrow it, for example with since, agent or tenant",
}

// SearchTasks returns tasks, newest first. It returns ErrSearchTooLong, ErrNoPrefix, or CodeInvalidParams if PostgreSQL
// cannot search for these texts.
func (s *Store) SearchTasks(ctx context.Context, f TaskSearch) ([]FoundTask, error) {
	ids := TaskFilter{ID: f.ID, Prefix: f.Prefix}
	first, last, err := ids.bounds()
	if err != nil {
		return nil, err
	}
	p := dbsqlc.TaskSearchParams{
		FirstID: db.PGID(first), LastID: db.PGID(last), Since: db.PGTime(f.Since), Until: db.PGTime(f.Until),
		Tenant: f.Tenant, Owner: f.Owner, Agents: f.Agents, ContextID: f.ContextID, States: []int16{},
		Parked: f.Parked, Roots: f.Roots, NotRetried: f.NotRetried, BeforeTime: db.PGTime(f.After.CreatedAt),
		BeforeID: db.PGID(f.After.ID), Outcome: f.Outcome, FirstText: textPattern(f.Text),
		Member: memberPattern(f.MetadataKey), ErrorLike: likePattern(f.Error), ErrorText: textPattern(f.Error),
		Max: int32(f.Limit), Ids: db.PGIDs(f.IDs),
	}
	if p.Agents == nil {
		p.Agents = []string{}
	}
	for _, st := range f.States {
		p.States = append(p.States, int16(st))
	}
	browse := s.db.Browse
	if f.ID != (a2a.ID{}) || f.Prefix != "" || len(f.IDs) > 0 {
		browse = s.db.Lookup
	}
	var rows []dbsqlc.TaskSearchRow
	err = browse(ctx, f.Timeout, func(ctx context.Context, tx *db.Tx) (err error) {
		rows, err = dbsqlc.New(tx).TaskSearch(ctx, p)
		return err
	})
	var refused *pgconn.PgError
	switch {
	case db.Blocked(err):
		return nil, ErrSearchTooLong
	case db.IsCode(err, "22", "54") && errors.As(err, &refused):
		return nil, a2a.Errorf(a2a.CodeInvalidParams, "PostgreSQL cannot search for this: %s", refused.Message)
	case err != nil:
		return nil, fmt.Errorf("search tasks: %w", db.Unavailable(err))
	}
	found := make([]FoundTask, len(rows))
	for i := range rows {
		found[i] = foundTask(&rows[i])
	}
	return found, nil
}

// saidText finds the first text of a message in the beginning of its JSON, without an escape that is cut off.
var saidText = regexp.MustCompile(`"text":\s*("(?:[^"\\]|\\[^u]|\\u[0-9a-fA-F]{4})*)`)

// firstText returns the first text of a message of which only the beginning is known, or "".
func firstText(beginning string) string {
	m := saidText.FindStringSubmatch(beginning)
	if m == nil {
		return ""
	}
	text, _ := rawjson.String(a2a.Raw(m[1] + `"`))
	return text
}

func foundTask(r *dbsqlc.TaskSearchRow) FoundTask {
	t := FoundTask{Error: r.Error, TaskRow: TaskRow{
		ID: r.ID.Bytes, Tenant: r.Tenant, Owner: r.Owner, Agent: r.Agent, ContextID: r.ContextID,
		State: a2a.State(r.State), StatusAt: r.StatusAt.Time.UTC(), CreatedAt: r.CreatedAt.Time.UTC(),
		LastSeq: r.LastSeq, Attempt: int(r.Attempt), Epoch: r.LeaseEpoch, ReadyAt: db.TimeOrZero(r.ReadyAt),
		Worker: r.Worker, LeaseUntil: db.TimeOrZero(r.LeaseUntil), Parent: r.ParentID.Bytes, Assignee: r.Assignee,
	}}
	if said := firstText(r.Said); t.State.Interrupted() {
		t.Question = said
	} else {
		t.Error = cmp.Or(said, t.Error)
	}
	if r.ParkedSince.Valid {
		t.Parked = &Parked{
			Since: r.ParkedSince.Time.UTC(), Until: db.TimeOrZero(r.ParkedUntil), Reason: r.ParkedReason,
		}
	}
	return t
}

// textPattern matches stored messages with text in one of their texts. It is a regular expression of PostgreSQL, on the
// JSON as the store writes it. Names of members, and texts in data, do not match.
func textPattern(text string) string {
	if text == "" {
		return ""
	}
	return `"text":"([^"\\]|\\.)*` + jsonLiteral(text)
}

// memberPattern matches JSON with a member of that name. A quote within a text is escaped, so a text does not match.
func memberPattern(name string) string {
	if name == "" {
		return ""
	}
	return `"` + jsonLiteral(name) + `"\s*:`
}

// jsonLiteral is a regular expression that matches text within a JSON string.
func jsonLiteral(text string) string {
	quoted := string(rawjson.AppendString(nil, text))
	return regexp.QuoteMeta(quoted[1 : len(quoted)-1])
}

// likePattern is a pattern of LIKE that matches what contains text.
func likePattern(text string) string {
	if text == "" {
		return ""
	}
	return `%` + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text) + `%`
}
