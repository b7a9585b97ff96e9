package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/term"
)

// MigrateCmd is `a2ad migrate`.
type MigrateCmd struct {
	Up     MigrateUpCmd     `cmd:"" group:"commands" help:"Apply all migrations of this version of a2ad."`
	Down   MigrateDownCmd   `cmd:"" group:"commands" help:"@down"`
	Status MigrateStatusCmd `cmd:"" group:"commands" help:"Show which migrations are applied."`
}

// MigrateUpCmd is `a2ad migrate up`.
type MigrateUpCmd struct {
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*MigrateUpCmd) Help() string {
	return `Several processes can run this at once: one migrates, and the others wait for it. ` +
		`Servers of the previous version keep working meanwhile. ` +
		`If a long transaction, such as a dump, holds a lock that a migration needs, ` +
		`a2ad retries the migration until it gets the lock.`
}

// Run migrates and shows the result.
func (c *MigrateUpCmd) Run(ctx context.Context, app *App) error {
	return c.withDatabase(ctx, app, func(ctx context.Context, url string) error {
		if err := operate.MigrateUp(ctx, url, app.Note); err != nil {
			return err
		}
		_, err := showMigrations(ctx, app, c.Output, url)
		return err
	})
}

// MigrateDownCmd is `a2ad migrate down`.
type MigrateDownCmd struct {
	Yes      bool `help:"Do it: the data in the tables of the migration is lost."`
	Database `group:"database"`
	Output
}

// Validate is called by the parser.
func (c *MigrateDownCmd) Validate() error {
	if !c.Yes {
		return errors.New("the data in the tables of the newest migration would be lost: " +
			"check \"a2ad migrate status\", then pass --yes")
	}
	return nil
}

// Run rolls one migration back.
func (c *MigrateDownCmd) Run(ctx context.Context, app *App) error {
	return c.withDatabase(ctx, app, func(ctx context.Context, url string) error {
		if err := operate.MigrateDown(ctx, url, app.Note); err != nil {
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
	return `The exit code is 1 if a migration is missing, so that a script can wait for the schema.`
}

// Run shows the migrations.
func (c *MigrateStatusCmd) Run(ctx context.Context, app *App) error {
	return c.withDatabase(ctx, app, func(ctx context.Context, url string) error {
		missing, err := showMigrations(ctx, app, c.Output, url)
		if err == nil && missing > 0 {
			err = fmt.Errorf("%s missing: run \"a2ad migrate up\"", areMissing(missing))
		}
		return err
	})
}

// migrationRow is one migration.
type migrationRow struct {
	Version int64      `json:"version"`
	Name    string     `json:"name"`
	Applied *time.Time `json:"applied"` // null: not yet
}

// showMigrations prints the migrations and returns how many are missing.
func showMigrations(ctx context.Context, app *App, out Output, url string) (missing int, err error) {
	steps, err := operate.MigrateStatus(ctx, url)
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
	head := []string{"VERSION", "MIGRATION", "APPLIED"}
	return missing, term.Rows(&app.Console, out.json(), head, rows, func(r migrationRow) []string {
		return []string{strconv.FormatInt(r.Version, 10), r.Name, term.MomentOf(r.Applied)}
	})
}

// areMissing is the subject of a sentence about missing migrations.
func areMissing(n int) string {
	if n == 1 {
		return "1 migration is"
	}
	return fmt.Sprintf("%d migrations are", n)
}
