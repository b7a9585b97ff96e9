package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/devpg"
)

// Database is shared by the commands that work on the database.
type Database struct {
	config.Database `group:"database"`
}

func (d *Database) check() []config.Fault { return d.Check() }

// devDatabase is the database of dev on its own server.
const devDatabase = "a2ad"

// devPostgres is where dev keeps its PostgreSQL.
func (d *Database) devPostgres() devpg.Config {
	return devpg.Config{Dir: d.DataDir, BinDir: d.PGBinDir}
}

// withDatabase calls do with the URL of the database of an operator's command: the one that is set, or else that of
// dev. If dev is not running, it starts the PostgreSQL of dev and stops it after the command.
func (d *Database) withDatabase(
	ctx context.Context, app *App, do func(ctx context.Context, url string) error,
) (err error) {
	if d.DatabaseURL.IsSet() {
		return do(ctx, d.DatabaseURL.Reveal())
	}
	cfg := d.devPostgres()
	cfg.Logger = slog.New(slog.NewTextHandler(app.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	url, err := devpg.Locate(cfg.Dir, devDatabase)
	if err == nil {
		return do(ctx, url)
	}
	if !errors.Is(err, devpg.ErrNotRunning) {
		return fmt.Errorf("look for the database of dev: %w", err)
	}
	// Start makes a cluster if there is none. A typo in --data-dir must not do that.
	if !devpg.Exists(cfg.Dir) {
		return fmt.Errorf("there is no database: set A2AD_DATABASE_URL, "+
			"or start \"a2ad dev\", which keeps its own in %s", d.DataDir)
	}
	srv, err := devpg.Start(ctx, cfg)
	if err != nil {
		return fmt.Errorf("start the database of dev: %w", err)
	}
	defer func() { err = errors.Join(err, srv.Stop(context.WithoutCancel(ctx))) }()
	if url, err = srv.EnsureDatabase(ctx, devDatabase); err != nil {
		return err
	}
	return do(ctx, url)
}
