package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/a2ad/a2ad/internal/config"
)

// withDevDatabase fails: on Windows dev has no database of its own.
func (*Database) withDevDatabase(context.Context, *App, func(ctx context.Context, url string) error) error {
	return errors.New("there is no database: set A2AD_DATABASE_URL")
}

// startPostgres fails. The server of dev runs without root and ends with its parent, which is done by means of Unix.
func startPostgres(context.Context, *config.Config, *slog.Logger) (url string, stop func() error, err error) {
	return "", nil, errors.New("a2ad dev does not start PostgreSQL on Windows: start one, and set A2AD_DATABASE_URL")
}
