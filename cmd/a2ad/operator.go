package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/wake"
)

const (
	operatorName  = "operator"
	operatorConns = 4
)

// withStore calls do with the store of an operator's command. The store notifies running servers of what the command
// changes. If the database is a standby, a note says how old is what the command reads.
func (d *Database) withStore(ctx context.Context, app *App, do func(*store.Store) error) error {
	return d.withDatabase(ctx, app, func(ctx context.Context, url string) error {
		s, err := openStore(ctx, url)
		if err != nil {
			return err
		}
		defer s.Close()
		standing, err := s.Operate.Standing(ctx)
		if err != nil {
			return err
		}
		if standing.Standby {
			app.Note("a2ad: the database is a standby: " + standing.Lag())
		}
		return do(s)
	})
}

func openStore(ctx context.Context, url string) (*store.Store, error) {
	var s *store.Store
	publish := func(keys ...string) {
		// One payload per key, in the form of notify.Publisher. Servers poll, so a lost one costs only time.
		for _, k := range keys {
			s.DB.Notify(context.WithoutCancel(ctx), []string{operatorName + " " + k}) //nolint:errcheck // servers poll
		}
	}
	s, err := store.Open(ctx, store.Config{
		Config:    db.Config{URL: url, Replica: operatorName, PoolSize: operatorConns, Wake: publish, Actor: actor()},
		Committed: func(task a2a.ID, _ []a2a.Entry) { publish(wake.Task(task)) },
	})
	if err != nil {
		return nil, err
	}
	if err := s.Operate.CheckSchema(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// actor names the person at the terminal in the audit log.
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

func parseTaskID(id string) (a2a.ID, error) {
	t, err := a2a.ParseID(id)
	if err != nil {
		return t, fmt.Errorf("task %s: not a task id", id)
	}
	return t, nil
}

// optionalTaskID is parseTaskID, but returns the zero id for "".
func optionalTaskID(id string) (a2a.ID, error) {
	if id == "" {
		return a2a.ID{}, nil
	}
	return parseTaskID(id)
}

func parseWebhookID(id string) (a2a.ID, error) {
	p, err := a2a.ParseID(id)
	if err != nil {
		return p, fmt.Errorf("webhook %s: not the id of a webhook", id)
	}
	return p, nil
}

// checkLimit bounds what is read at once.
func checkLimit(n int) error {
	if n < 1 || n > 10_000 {
		return errors.New("--limit must be from 1 to 10000")
	}
	return nil
}

// each calls do with every id and prints each failure. It returns an error at the end if any call failed. It stops when
// ctx ends.
func each(ctx context.Context, app *App, ids []string, do func(id string) error) error {
	failed := false
	for _, id := range ids {
		err := do(id)
		if err != nil && ctx.Err() != nil {
			return err
		}
		if err != nil {
			app.Note("a2ad: " + a2a.Explain(err))
			failed = true
		}
	}
	if failed {
		return &exitError{code: exitFailure}
	}
	return nil
}
