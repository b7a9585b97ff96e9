package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/term"
)

// APIKeyCreateCmd is `a2ad apikey create`.
type APIKeyCreateCmd struct {
	Tenant string   `required:"" placeholder:"T" help:"Organization that the key belongs to."`
	Owner  string   `required:"" placeholder:"O" help:"User or program that signs in with the key; it owns the tasks."`
	Scopes []string `default:"tasks:read,tasks:write,push:write" placeholder:"SCOPE" help:"${scopes_help}"`
	Agents []string `placeholder:"AGENT" help:"The only agents that the key may use (default all)."`
	Name   string   `placeholder:"TEXT" help:"A note that helps to find the key again."`

	ExpiresIn time.Duration `placeholder:"DURATION" help:"${expires_help}"`
	Env       string        `default:"live" placeholder:"WORD" help:"${env_help}"`

	Database `group:"database"`
	Output
}

// scopesHelp is the help of --scopes.
const scopesHelp = "What the key allows: tasks:read, tasks:write, push:write, worker (default all except worker)."

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
	if c.ExpiresIn < 0 {
		return errors.New("--expires-in must not be negative")
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
type createdKey struct {
	ID        string     `json:"id"`
	Key       string     `json:"key"`
	Tenant    string     `json:"tenant"`
	Owner     string     `json:"owner"`
	Name      string     `json:"name,omitempty"`
	Scopes    []string   `json:"scopes"`
	Agents    []string   `json:"agents,omitempty"` // nil: all
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}

// Run creates the key.
func (c *APIKeyCreateCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		key, err := c.create(ctx, s)
		if err != nil {
			return err
		}
		if c.json() {
			return term.JSON(app.Stdout, key)
		}
		return key.print(app)
	})
}

func (c *APIKeyCreateCmd) create(ctx context.Context, s *store.Store) (*createdKey, error) {
	slices.Sort(c.Scopes)
	slices.Sort(c.Agents)
	scopes, names := slices.Compact(c.Scopes), slices.Compact(c.Agents)
	key, err := auth.NewKey(c.Env, nil)
	if err != nil {
		return nil, err
	}
	made, err := s.Access.CreateKey(ctx, access.Key{
		ID: key.ID(), Tenant: c.Tenant, Owner: c.Owner, Name: c.Name, Scopes: scopes, Agents: names,
	}, key.SecretHash(), c.ExpiresIn)
	if err != nil {
		return nil, err
	}
	return &createdKey{
		ID: key.ID(), Key: key.Reveal(), Tenant: c.Tenant, Owner: c.Owner, Name: c.Name, Scopes: scopes, Agents: names,
		CreatedAt: made.CreatedAt, ExpiresAt: orNil(made.ExpiresAt),
	}, nil
}

func (k *createdKey) print(app *App) error {
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
