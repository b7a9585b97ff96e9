// Package store opens all packages of the store together. Each of them owns some tables in PostgreSQL and their
// statements. A method is one transaction.
//
// What a method reports as written is durable. Wake-ups and other effects come after the commit. The store knows
// nothing of how wake-ups are sent, of agents' programs or of the protocol's versions.
package store

import (
	"context"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/jobs"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/schedules"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// Config says how to reach the database, and what the store calls after its commits.
type Config struct {
	db.Config
	// Reserve reserves a slot of this process's worker for a new task of an agent, if one is free and no other task
	// waits; nil: never. It must not block.
	Reserve func(agent string) (tasks.Slot, bool)
	// Committed is called after a commit that wrote events of a task, with those events, or with none if the store does
	// not know them. It must not block, and must not change the events.
	Committed func(task a2a.ID, events []a2a.Entry)
}

// Store has the packages of the store on one database. It is safe for concurrent use.
type Store struct {
	DB        *db.DB
	Access    *access.Store
	Webhooks  *webhooks.Store
	Tasks     *tasks.Store
	Schedules *schedules.Store
	Operate   *operate.Store
	Jobs      *jobs.Store
}

// Open connects. It fails as db.Open does, and does not check the schema.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	conns, err := db.Open(ctx, cfg.Config)
	if err != nil {
		return nil, err
	}
	keys, hooks := access.New(conns), webhooks.New(conns)
	all := tasks.New(conns, hooks, tasks.Config{Reserve: cfg.Reserve, Committed: cfg.Committed})
	reads := operate.New(conns, keys)
	return &Store{
		DB: conns, Access: keys, Webhooks: hooks, Tasks: all, Schedules: schedules.New(conns, all),
		Operate: reads, Jobs: jobs.New(conns, all, reads),
	}, nil
}

// Close waits for the connections in use and closes them.
func (s *Store) Close() { s.DB.Close() }
