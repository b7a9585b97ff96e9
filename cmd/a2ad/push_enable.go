package main

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/term"
)

// PushEnableCmd is `a2ad push enable`.
type PushEnableCmd struct {
	Tenant   string `required:"" placeholder:"T" help:"Tenant of the webhooks."`
	Origin   string `arg:"" help:"Destination: scheme://host:port, as push ls -o json shows it."`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*PushEnableCmd) Help() string {
	return `Deliveries to the destination begin again at once. The exit code is 1 if it is already enabled.`
}

// enabledOrigin is the result for programs.
type enabledOrigin struct {
	Tenant  string `json:"tenant"`
	Origin  string `json:"origin"`
	Enabled bool   `json:"enabled"`
}

// Run enables.
func (c *PushEnableCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		changed, err := s.Webhooks.EnableDestination(ctx, c.Tenant, c.Origin)
		if err != nil {
			return err
		}
		if !changed {
			return fmt.Errorf("destination %s of tenant %s is already enabled", c.Origin, c.Tenant)
		}
		if c.json() {
			return term.JSON(app.Stdout, enabledOrigin{Tenant: c.Tenant, Origin: c.Origin, Enabled: true})
		}
		_, err = fmt.Fprintf(app.Stdout, "%s is enabled\n", c.Origin)
		return err
	})
}
