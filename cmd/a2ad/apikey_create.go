package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/term"
)

// APIKeyCreateCmd is `a2ad apikey create`.
type APIKeyCreateCmd struct {
	Tenant string   `required:"" placeholder:"T" help:"Organization that the key belongs to."`
	Owner  string   `required:"" placeholder:"O" help:"User or program that signs in with the key; it owns the tasks."`
	Scopes []string `default:"tasks:read,tasks:write,push:write" placeholder:"SCOPE" help:"@scopes"`
	Agents []string `placeholder:"AGENT" help:"The only agents that the key may use (default all)."`
	Name   string   `placeholder:"TEXT" help:"A note that helps to find the key again."`

	ExpiresIn time.Duration `placeholder:"DURATION" help:"@expires"`
	Env       string        `default:"live" placeholder:"WORD" help:"@env"`

	Reason string `placeholder:"TEXT" help:"Why, for the audit log."`
	Service
	Output
}

// scopesHelp is the help of --scopes.
const scopesHelp = "What the key allows: tasks:read, tasks:write, push:write (default these), " +
	"worker, signal, operator:read, operator:write, tenant:read."

// Validate is called by the parser.
func (c *APIKeyCreateCmd) Validate() error {
	for _, s := range c.Scopes {
		if !auth.Scope(s).Valid() {
			return fmt.Errorf("--scopes: unknown scope %q; the scopes are %s", s, config.ScopeNames())
		}
	}
	for _, a := range c.Agents {
		if !agents.ValidName(a) {
			return fmt.Errorf("--agents: %q cannot be the name of an agent", a)
		}
	}
	if c.ExpiresIn != 0 && c.ExpiresIn < time.Millisecond {
		return errors.New("--expires-in must be at least 1ms")
	}
	if !auth.ValidEnv(c.Env) {
		return errors.New("--env: write 1 to 16 lower-case letters and digits")
	}
	if c.Tenant == "" || c.Owner == "" || len(c.Tenant) > 200 || len(c.Owner) > 200 {
		return errors.New("--tenant and --owner must have 1 to 200 bytes")
	}
	return nil
}

// createdKey is a new key, at the only moment when its secret is known.
type createdKey = admin.CreatedKey

// Run creates the key.
func (c *APIKeyCreateCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		var key createdKey
		err := api.Post(ctx, "/keys", admin.NewKey{
			Why: admin.Why{Reason: c.Reason}, Tenant: c.Tenant, Owner: c.Owner, Scopes: c.Scopes, Agents: c.Agents,
			Name: c.Name, ExpiresInMs: c.ExpiresIn.Milliseconds(), Env: c.Env,
		}, &key)
		if err != nil {
			return err
		}
		if c.json() {
			return term.JSON(app.Stdout, key)
		}
		return printKey(app, &key)
	})
}

func printKey(app *App, k *createdKey) error {
	w := tabwriter.NewWriter(app.Stdout, 0, 8, 2, ' ', 0)
	line := func(name, value string) { fmt.Fprintf(w, "%s\t%s\n", name, value) }
	line("id", k.ID)
	line("caller", term.Cell(k.Tenant+"/"+k.Owner))
	line("scopes", strings.Join(k.Scopes, ","))
	line("agents", keyAgents(k.Agents))
	if k.ExpiresAt != nil {
		line("expires", term.Moment(*k.ExpiresAt))
	}
	line("key", k.Key)
	if err := w.Flush(); err != nil {
		return err
	}
	app.Note("The key is not stored and cannot be shown again. Send it as \"Authorization: Bearer …\", " +
		"or put it into A2AD_API_KEY.")
	return nil
}
