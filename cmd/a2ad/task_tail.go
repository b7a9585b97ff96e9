package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/tail"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskTailCmd is `a2ad task tail`.
type TaskTailCmd struct {
	Tenant  string   `placeholder:"T" help:"Only tasks of this tenant."`
	Owner   string   `placeholder:"O" help:"Only tasks of this owner."`
	Agent   string   `placeholder:"NAME" help:"Only tasks of this agent."`
	Context string   `placeholder:"ID" help:"Only tasks of this conversation."`
	State   []string `placeholder:"STATE" words:"states" help:"Only tasks in one of these states: ${states_and}."`
	Parked  bool     `help:"Only parked tasks."`
	Roots   bool     `help:"Leave out the tasks that others have called."`
	ID      string   `name:"id" placeholder:"PREFIX" help:"Only tasks whose id begins with this."`
	Since   Moment   `placeholder:"TIME" help:"Only tasks created since then: a time, or how long ago (24h)."`
	Service
	Output
}

// Help is shown below the usage line.
func (*TaskTailCmd) Help() string {
	return `Prints a line for each change of a task as it happens, until Ctrl-C. A line has the time of the state, ` +
		`the id, the state, the agent, the tenant and owner, and the reason of a failure. It is never folded. ` +
		`Changes that follow each other within 200 ms may be one line. If changes were missed, a note says so.`
}

// Validate is called by the parser.
func (c *TaskTailCmd) Validate() error { return checkStates(c.State) }

// Run follows.
func (c *TaskTailCmd) Run(ctx context.Context, app *App) error {
	return c.withTail(ctx, app, func(api *admin.Client) error {
		t := &taskTail{app: app, json: c.json()}
		t.query.TaskFilter = admin.TaskFilter{
			Tenant: c.Tenant, Owner: c.Owner, Context: c.Context, ID: c.ID, State: c.State, Since: c.Since.Time,
			Parked: c.Parked, Roots: c.Roots,
		}
		if c.Agent != "" {
			t.query.Agent = []string{c.Agent}
		}
		err := t.run(ctx, api)
		if ctx.Err() != nil {
			return &exitError{code: exitInterrupted}
		}
		return err
	})
}

// taskTail shows the changes of tasks.
type taskTail struct {
	app      *App
	json     bool
	query    admin.TailQuery
	followed bool  // the server has sent an event
	lost     bool  // the connection is lost, and a note says so
	failed   error // to show an event
}

// run shows changes. If the connection is lost it connects again, and continues after the change that it has shown
// last.
func (t *taskTail) run(ctx context.Context, api *admin.Client) error {
	for failures := 0; ; failures++ {
		err := api.Follow(ctx, "/tasks/tail", t.query, func(ev sse.Event) error {
			failures, t.followed = 0, true
			t.failed = t.show(ev)
			return t.failed
		})
		switch {
		case t.failed != nil:
			return t.failed
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, admin.ErrCut) && !(t.followed && mayPass(err)):
			return err
		}
		if !t.lost {
			t.app.Note("connection lost, reconnecting")
			t.lost = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(reconnect.Delay(failures, nil)):
		}
	}
}

func (t *taskTail) show(ev sse.Event) error {
	var c admin.TaskChange
	if err := json.Unmarshal(ev.Data, &c); err != nil {
		return fmt.Errorf("read a change: %w", err)
	}
	if ev.ID != "" {
		t.query.After = ev.ID
	}
	t.lost = false
	switch {
	case c.Missed != "":
		t.app.Note(c.Missed)
	case c.End != "":
		t.app.Note(c.End)
	case t.json:
		return term.JSON(t.app.Stdout, c.Task)
	default:
		return t.line(c.Task)
	}
	return nil
}

func (t *taskTail) line(r *admin.Task) error {
	state, reason := r.State, r.LastError
	if r.Parked != nil {
		state, reason = state+", parked", r.Parked.Reason
	}
	if reason != "" {
		reason = "  " + term.OneLine(reason)
	}
	_, err := fmt.Fprintf(t.app.Stdout, "%s  %s  %-14s  %s  %s%s\n", term.Moment(r.UpdatedAt), r.ID, state,
		term.Cell(r.Agent), term.Cell(r.Tenant+"/"+r.Owner), reason)
	return err
}

// withTail is withAdmin for streams of changes. With only a database, this process listens for wake-ups itself.
func (s *Service) withTail(ctx context.Context, app *App, do func(*admin.Client) error) error {
	if s.Server != "" {
		return s.withAdmin(ctx, app, do)
	}
	return s.withStore(ctx, app, func(st *store.Store) error {
		var hub notify.Hub
		log := slog.New(slog.NewTextHandler(app.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		listener, err := notify.NewListener(notify.ListenerConfig{
			Replica: operatorName + " " + db.NewUID().Short(), Hub: &hub, Alive: db.Alive, Log: log,
			Connect: func(ctx context.Context) (*pgx.Conn, error) {
				return pgx.ConnectConfig(ctx, st.DB.ConnConfig("tail"))
			},
		})
		if err != nil {
			return err
		}
		changes := tail.New(st.Operate.SearchTasks, &hub, log)
		losses := &notify.Losses{Hub: &hub, Dead: st.Tasks.DeadServers, Every: 15 * time.Second, Log: log}
		ctx, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { listener.Run(ctx) }) //nolint:errcheck // it only returns nil
		running.Go(func() { changes.Run(ctx) })  //nolint:errcheck // it only returns nil
		running.Go(func() { losses.Run(ctx) })   //nolint:errcheck // it only returns nil
		defer func() { cancel(); running.Wait() }()
		select {
		case <-listener.Ready():
		case <-ctx.Done():
			return ctx.Err()
		}
		cfg := s.local(st, nil)
		cfg.Streams.Tail = changes
		return do(admin.Local(admin.New(cfg)))
	})
}
