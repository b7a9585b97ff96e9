//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/devpg"
)

// devPostgres is where dev keeps its PostgreSQL.
func (d *Database) devPostgres() devpg.Config {
	return devpg.Config{Dir: d.DataDir, BinDir: d.PGBinDir}
}

// withDevDatabase calls do with the URL of the database of dev. If dev is not running, it starts the PostgreSQL of dev
// and stops it after the command.
func (d *Database) withDevDatabase(
	ctx context.Context, app *App, do func(ctx context.Context, url string) error,
) (err error) {
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

// startPostgres starts the PostgreSQL of dev and returns the URL of its database.
func startPostgres(
	ctx context.Context, cfg *config.Config, log *slog.Logger,
) (url string, stop func() error, err error) {
	pg, err := devpg.Start(ctx, devpg.Config{Dir: cfg.DataDir, BinDir: cfg.PGBinDir, Logger: log})
	if errors.Is(err, devpg.ErrInUse) {
		return "", nil, fmt.Errorf("%w\nStop the server that uses it, or choose another directory with --data-dir", err)
	}
	if err != nil {
		return "", nil, err
	}
	stop = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), devStopTimeout)
		defer cancel()
		return pg.Stop(ctx)
	}
	if url, err = pg.EnsureDatabase(ctx, devDatabase); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return url, stop, nil
}
