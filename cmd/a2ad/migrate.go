package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/term"
)

// MigrateCmd is `a2ad migrate`.
type MigrateCmd struct {
	Up     MigrateUpCmd     `cmd:"" group:"commands" help:"Bring the schema to the version of this binary."`
	Down   MigrateDownCmd   `cmd:"" group:"commands" help:"Take the newest step back, and with it what its tables hold."`
	Status MigrateStatusCmd `cmd:"" group:"commands" help:"Show which steps the database has taken."`
}

// MigrateUpCmd is `a2ad migrate up`.
type MigrateUpCmd struct {
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*MigrateUpCmd) Help() string {
	return `Several processes may do this at once: one migrates, the others wait for it. Steps are small enough for servers of the version before to go on working. A step that needs a lock which a long transaction holds, such as that of a dump, is repeated until it gets the lock.`
}

// Run migrates and shows what the database is then.
func (c *MigrateUpCmd) Run(ctx context.Context, app *App) error {
	return c.withDatabase(ctx, app, func(ctx context.Context, url string) error {
		if err := store.MigrateUp(ctx, url, app.Note); err != nil {
			return err
		}
		_, err := showMigrations(ctx, app, c.Output, url)
		return err
	})
}

// MigrateDownCmd is `a2ad migrate down`.
type MigrateDownCmd struct {
	Yes      bool `help:"Do it: what the tables of the step hold is lost."`
	Database `group:"database"`
	Output
}

// Validate is called by the parser.
func (c *MigrateDownCmd) Validate() error {
	if !c.Yes {
		return errors.New("what the tables of the newest step hold would be lost: look at \"a2ad migrate status\", then say --yes")
	}
	return nil
}

// Run takes one step back.
func (c *MigrateDownCmd) Run(ctx context.Context, app *App) error {
	return c.withDatabase(ctx, app, func(ctx context.Context, url string) error {
		if err := store.MigrateDown(ctx, url, app.Note); err != nil {
			return err
		}
		_, err := showMigrations(ctx, app, c.Output, url)
		return err
	})
}

// MigrateStatusCmd is `a2ad migrate status`.
type MigrateStatusCmd struct {
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*MigrateStatusCmd) Help() string {
	return `The exit code is 1 when a step is missing, so that a script can wait for the schema.`
}

// Run shows the steps.
func (c *MigrateStatusCmd) Run(ctx context.Context, app *App) error {
	return c.withDatabase(ctx, app, func(ctx context.Context, url string) error {
		missing, err := showMigrations(ctx, app, c.Output, url)
		if err == nil && missing > 0 {
			err = fmt.Errorf("steps that are missing: %d; \"a2ad migrate up\" takes them", missing)
		}
		return err
	})
}

// migrationRow is one step of the schema.
type migrationRow struct {
	Version int64      `json:"version"`
	Name    string     `json:"name"`
	Applied *time.Time `json:"applied"` // null: not yet
}

// showMigrations prints the steps and returns how many are missing.
func showMigrations(ctx context.Context, app *App, out Output, url string) (missing int, err error) {
	steps, err := store.MigrateStatus(ctx, url)
	if err != nil {
		return 0, err
	}
	rows := make([]migrationRow, len(steps))
	for i, s := range steps {
		rows[i] = migrationRow{Version: s.Version, Name: s.Name}
		if s.Applied.IsZero() {
			missing++
		} else {
			rows[i].Applied = &steps[i].Applied
		}
	}
	return missing, term.Rows(&app.Console, out.json(), []string{"VERSION", "STEP", "APPLIED"}, rows, func(r migrationRow) []string {
		return []string{strconv.FormatInt(r.Version, 10), r.Name, term.MomentOf(r.Applied)}
	})
}
