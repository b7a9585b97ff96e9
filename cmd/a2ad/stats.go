package main

import (
	"context"
	"errors"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

// StatsCmd is `a2ad stats`.
type StatsCmd struct {
	Usage bool     `help:"Show the usage of models that agents have reported, instead."`
	Since Moment   `placeholder:"TIME" help:"@usage_since"`
	By    []string `enum:"day,tenant,owner,agent,model" placeholder:"WHAT" help:"@usage_by"`
	Service
	Output
}

// Help is shown below the usage line.
func (*StatsCmd) Help() string {
	return `Shows tasks by agent and state, the queues, unreachable agents, the workers, the attempts that have been ` +
		`silent for longest, connected servers, the backlog of webhooks, destinations that are not called, sizes, ` +
		`and the oldest transactions.

With more than some hundred thousand tasks, the number of finished ones is an estimate, marked with ~.

With --usage it shows the tokens that agents have reported, and the requests to models, by agent and model. The view ` +
		`audit.usage_day has the same by day.`
}

// Validate is called by the parser.
func (c *StatsCmd) Validate() error {
	if !c.Usage && (len(c.By) > 0 || !c.Since.IsZero()) {
		return errors.New("--since and --by are for --usage")
	}
	return nil
}

// Run shows.
func (c *StatsCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		if c.Usage {
			return c.showUsage(ctx, app, api)
		}
		var s admin.Stats
		if err := api.Get(ctx, "/stats", nil, &s); err != nil {
			return err
		}
		if c.json() {
			return term.JSON(app.Stdout, s)
		}
		return showStats(app, &s)
	})
}

// listOf converts a list.
func listOf[A, B any](list []A, convert func(A) B) []B {
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = convert(v)
	}
	return out
}
