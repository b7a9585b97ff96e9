package main

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// PushEnableCmd is `a2ad push enable`.
type PushEnableCmd struct {
	Tenant string `required:"" placeholder:"T" help:"Tenant of the webhooks."`
	Origin string `arg:"" help:"Destination: scheme://host:port, as push ls -o json shows it."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit log."`
	Service
	Output
}

// Help is shown below the usage line.
func (*PushEnableCmd) Help() string {
	return `Deliveries to the destination begin again at once. The exit code is 1 if it is already enabled.`
}

// Run enables.
func (c *PushEnableCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		var enabled admin.EnabledDestination
		err := api.Post(ctx, "/destinations/enable", admin.EnableDestination{
			Why: admin.Why{Reason: c.Reason}, Tenant: c.Tenant, Origin: c.Origin,
		}, &enabled)
		if hasReason(err, admin.ReasonAlreadyEnabled) {
			return fmt.Errorf("destination %s of tenant %s is already enabled", c.Origin, c.Tenant)
		}
		if err != nil {
			return err
		}
		if c.json() {
			return term.JSON(app.Stdout, enabled)
		}
		_, err = fmt.Fprintf(app.Stdout, "%s is enabled\n", c.Origin)
		return err
	})
}
