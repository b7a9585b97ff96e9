package main

import (
	"context"

	"github.com/a2ad/a2ad/internal/config"
)

// Database is shared by the commands that work on the database.
type Database struct {
	config.Database `group:"database"`
}

func (d *Database) check() []config.Fault { return d.Check() }

// devDatabase is the database of dev on its own server.
const devDatabase = "a2ad"

// withDatabase calls do with the URL of the database of an operator's command: the one that is set, or else that of
// dev.
func (d *Database) withDatabase(ctx context.Context, app *App, do func(ctx context.Context, url string) error) error {
	if d.DatabaseURL.IsSet() {
		return do(ctx, d.DatabaseURL.Reveal())
	}
	return d.withDevDatabase(ctx, app, do)
}
