package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/wake"
)

// Unassigned selects the questions that no person is to answer. No person has this name.
const Unassigned = "unassigned"

// MaxAssignee is how many characters the name of a person has at most.
const MaxAssignee = 100

// Assignment says which person is to answer the question of a task.
type Assignment struct {
	Task  a2a.ID
	Asked time.Time // when the task asked the question: its status_at; zero: the question that it asks now
	To    string    // the name of the person; empty: none
}

// ValidAssignee reports whether a text can be the name of a person.
func ValidAssignee(name string) bool {
	return name != "" && name != Unassigned && name == strings.TrimSpace(name) && utf8.ValidString(name) &&
		utf8.RuneCountInString(name) <= MaxAssignee && !strings.ContainsFunc(name, unicode.IsControl)
}

// Assign assigns the question of a task to a person, or ends that. It returns ErrNotWaiting if the task asks nothing,
// or another question. An answer ends the assignment.
func (s *Store) Assign(ctx context.Context, a Assignment) error {
	if a.To != "" && !ValidAssignee(a.To) {
		return a2a.InvalidParams("assignee", "must have 1 to %d characters, and not be %q", MaxAssignee, Unassigned)
	}
	by := access.Action{}.Attributed(ctx).Actor
	err := db.DoInTx(ctx, s.db.Work(), func(tx *db.Tx) error {
		q := dbsqlc.New(tx)
		var tenant, owner string
		var err error
		if a.To != "" {
			var r dbsqlc.AssignmentSetRow
			r, err = q.AssignmentSet(ctx, dbsqlc.AssignmentSetParams{
				ID: db.PGID(a.Task), AskedAt: db.PGTime(a.Asked), Assignee: a.To, AssignedBy: cmp.Or(by, tx.Actor()),
			})
			tenant, owner = r.Tenant, r.Owner
		} else {
			var r dbsqlc.AssignmentEndRow
			r, err = q.AssignmentEnd(ctx, db.PGID(a.Task), db.PGTime(a.Asked))
			tenant, owner = r.Tenant, r.Owner
		}
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotWaiting
		}
		if err != nil {
			return err
		}
		tx.Wake(wake.Task(a.Task)) // open pages show it
		return access.Record(ctx, tx, access.Action{
			Name: access.ActionTaskAssign, Tenant: tenant, Owner: owner, Task: a.Task,
			Detail: map[string]any{"assignee": a.To},
		})
	})
	if err != nil {
		return fmt.Errorf("assign: %w", db.Unavailable(err))
	}
	return nil
}
