package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tenants"
	"github.com/a2ad/a2ad/internal/tenantfile"
	"github.com/a2ad/a2ad/internal/term"
)

// TenantCmd is `a2ad tenant`.
type TenantCmd struct {
	Ls     TenantLsCmd     `cmd:"" group:"commands" help:"List tenants that are moving or have moved."`
	Export TenantExportCmd `cmd:"" group:"commands" help:"Take a tenant out of this deployment, into a file."`
	Import TenantImportCmd `cmd:"" group:"commands" help:"Put a tenant from a file into this deployment."`
	Reopen TenantReopenCmd `cmd:"" group:"commands" help:"Serve a tenant again that was exported from here."`
	Forget TenantForgetCmd `cmd:"" group:"commands" help:"Remove the rows of a tenant that was exported from here."`
}

// TenantLsCmd is `a2ad tenant ls`.
type TenantLsCmd struct {
	Database `group:"database"`
	Output
}

// movedTenant is one tenant. Its JSON does not change silently.
type movedTenant struct {
	Tenant string    `json:"tenant"`
	State  string    `json:"state"`
	Since  time.Time `json:"since"`
	Kept   bool      `json:"kept"` // its rows are still here, to be put back
	SHA256 string    `json:"sha256,omitempty"`
}

// Run lists.
func (c *TenantLsCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		moves, err := s.Tenants.Moves(ctx, "")
		if err != nil {
			return err
		}
		list := make([]movedTenant, len(moves))
		for i, m := range moves {
			list[i] = movedTenant{m.Tenant, string(m.State), m.Since, m.Kept, m.SHA256}
		}
		head := []string{"TENANT", "STATE", "SINCE", "ROWS"}
		return term.Rows(&app.Console, c.json(), head, list, func(m movedTenant) []string {
			rows := "-"
			if m.Kept {
				rows = "kept"
			}
			return []string{term.Cell(m.Tenant), m.State, term.Moment(m.Since), rows}
		})
	})
}

// TenantExportCmd is `a2ad tenant export`.
type TenantExportCmd struct {
	Tenant   string        `arg:"" help:"The tenant."`
	To       string        `required:"" placeholder:"FILE" help:"The file to write."`
	Wait     time.Duration `default:"5m" placeholder:"DURATION" help:"How long attempts may continue (default 5m)."`
	Expire   bool          `help:"After --wait, end the attempts. The tasks are run again after the move."`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*TenantExportCmd) Help() string {
	return `From its start, all servers answer requests of the tenant with an error that clients may repeat. ` +
		`The command waits until no task of the tenant is at work, takes all its rows out of the tables, and writes ` +
		`them to the file. The rows stay in the database until "a2ad tenant forget".

It can be repeated, also after an interruption: it continues, and writes the same file. ` +
		`"a2ad tenant reopen" undoes it.`
}

// Run exports.
func (c *TenantExportCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		var m tenantfile.Manifest
		err := writeDurably(c.To, func(file *os.File) (err error) {
			m, err = tenantfile.Export(ctx, s.Tenants, file, tenantfile.ExportConfig{
				Tenant: c.Tenant, Schema: operate.SchemaVersion(), Wait: c.Wait, Expire: c.Expire,
				Note: func(text string) { app.Note(term.OneLine(text)) },
			})
			return err
		})
		if err != nil {
			return err
		}
		return printTenant(app, c.json(), &m)
	})
}

// writeDurably writes a file of this name that is whole, or none.
func writeDurably(name string, write func(*os.File) error) error {
	file, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".part*")
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	defer os.Remove(file.Name())
	if err := errors.Join(write(file), file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), name); err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	if runtime.GOOS == "windows" { // which cannot sync a directory
		return nil
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// printTenant prints what is in a file.
func printTenant(app *App, asJSON bool, m *tenantfile.Manifest) error {
	if asJSON {
		return term.JSON(app.Stdout, m)
	}
	tables := slices.Sorted(maps.Keys(m.Rows))
	err := term.Rows(&app.Console, false, []string{"TABLE", "ROWS"}, tables, func(table string) []string {
		return []string{table, number(m.Rows[table])}
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(app.Stdout, "SHA-256 %s\n", m.SHA256)
	return err
}

// TenantImportCmd is `a2ad tenant import`.
type TenantImportCmd struct {
	From     string    `required:"" placeholder:"FILE" help:"A file of \"a2ad tenant export\"."`
	Keys     seal.Ring `type:"setting" name:"keys" kong:"-" secret:"yes"`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*TenantImportCmd) Help() string {
	return `Stores all rows of the file, and compares each with what is stored. Then this deployment serves the ` +
		`tenant. Until that, it refuses requests of the tenant. Both deployments need the same version of a2ad. ` +
		`A2AD_KEYS must have the keys of the deployment that the tenant comes from, since secrets stay encrypted.

The command can be repeated, also after an interruption: each row is stored once.`
}

// Run imports.
func (c *TenantImportCmd) Run(ctx context.Context, app *App) error {
	file, err := os.Open(c.From)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer file.Close()
	return c.withStore(ctx, app, func(s *store.Store) error {
		m, known, err := tenantfile.Import(ctx, file, s.Tenants, tenantfile.ImportConfig{
			Schema: operate.SchemaVersion(),
			Opens: func(webhook, column string, sealed []byte) error {
				return push.Opens(c.Keys, access.KeyUsage{Name: webhook, Place: column, Sample: sealed})
			},
		})
		switch {
		case errors.Is(err, tenants.ErrKnown):
			return fmt.Errorf("tenant %s: %w: it can only move to a deployment that has nothing of it", m.Tenant, err)
		case errors.Is(err, tenants.ErrOther):
			return fmt.Errorf("tenant %s: %w: run \"a2ad tenant forget %[1]s\" first", m.Tenant, err)
		case err != nil:
			return fmt.Errorf("%s: %w", c.From, err)
		case known:
			app.Note("tenant " + m.Tenant + " was imported from this file before")
		}
		return printTenant(app, c.json(), &m)
	})
}

// oneTenant is the tenant of a command that asks before it acts.
type oneTenant struct {
	Tenant   string `arg:"" help:"The tenant."`
	Yes      bool   `short:"y" help:"Do not ask."`
	Database `group:"database"`
	Output
}

// tenantResult is the result for programs.
type tenantResult struct {
	Tenant string `json:"tenant"`
	Done   string `json:"done"`
}

// each calls do, which returns false at the end, after a confirmation.
func (c *oneTenant) each(
	ctx context.Context, app *App, question, done string,
	do func(*tenants.Store) func(context.Context, string) (bool, error),
) error {
	if !c.Yes && !app.CanAsk {
		return &exitError{exitUsage, errors.New("stdin is not a terminal; pass --yes")}
	}
	return c.withStore(ctx, app, func(s *store.Store) error {
		if !c.Yes {
			switch sure, err := app.Confirm(ctx, fmt.Sprintf(question, term.OneLine(c.Tenant))); {
			case err != nil:
				return &exitError{exitInterrupted, errNotConfirmed}
			case !sure:
				return errNotConfirmed
			}
		}
		next := do(s.Tenants)
		for more := true; more; {
			var err error
			if more, err = next(ctx, c.Tenant); err != nil {
				return err
			}
		}
		if c.json() {
			return term.JSON(app.Stdout, tenantResult{c.Tenant, done})
		}
		_, err := fmt.Fprintf(app.Stdout, "tenant %s: %s\n", term.OneLine(c.Tenant), done)
		return err
	})
}

var errNotConfirmed = errors.New("nothing was changed")

// TenantReopenCmd is `a2ad tenant reopen`.
type TenantReopenCmd struct{ oneTenant }

// Help is shown below the usage line.
func (*TenantReopenCmd) Help() string {
	return `Puts all rows back that "a2ad tenant export" has taken, and serves the tenant here. If another ` +
		`deployment has imported the file, both have the tasks, and both run them: remove them there first. ` +
		`The command can be repeated after an interruption. It asks for confirmation; a script passes --yes.`
}

// Run puts the rows back.
func (c *TenantReopenCmd) Run(ctx context.Context, app *App) error {
	return c.each(ctx, app, "Serve tenant %s here? No other deployment may have imported it.", "served here",
		func(s *tenants.Store) func(context.Context, string) (bool, error) { return s.Reopen })
}

// TenantForgetCmd is `a2ad tenant forget`.
type TenantForgetCmd struct{ oneTenant }

// Help is shown below the usage line.
func (*TenantForgetCmd) Help() string {
	return `Removes the rows of a tenant that has left, once another deployment serves it. Requests of the tenant ` +
		`are still refused here. If an import has not ended, the command removes what was imported. ` +
		`It asks for confirmation; a script passes --yes.`
}

// Run removes the rows.
func (c *TenantForgetCmd) Run(ctx context.Context, app *App) error {
	return c.each(ctx, app, "Remove the rows of tenant %s permanently?", "rows removed",
		func(s *tenants.Store) func(context.Context, string) (bool, error) { return s.Forget })
}
