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
	"github.com/a2ad/a2ad/internal/term"
)

// APIKeyCmd is `a2ad apikey`.
type APIKeyCmd struct {
	Create APIKeyCreateCmd `cmd:"" group:"commands" help:"Make a key and show it, once."`
	Ls     APIKeyLsCmd     `cmd:"" group:"commands" help:"List keys."`
	Revoke APIKeyRevokeCmd `cmd:"" group:"commands" help:"Revoke keys; requests with them are refused from then on."`
}

// APIKeyCreateCmd is `a2ad apikey create`.
type APIKeyCreateCmd struct {
	Tenant string   `required:"" placeholder:"T" help:"Organisation that the key belongs to."`
	Owner  string   `required:"" placeholder:"O" help:"User or program that the key stands for; tasks belong to it."`
	Scopes []string `default:"tasks:read,tasks:write,push:write" placeholder:"SCOPE" help:"What the key may do: tasks:read, tasks:write, push:write, worker (default all but worker)."`
	Agents []string `placeholder:"AGENT" help:"The only agents that the key is for (default all)."`
	Name   string   `placeholder:"TEXT" help:"A note to find it again."`

	ExpiresIn time.Duration `placeholder:"DURATION" help:"How long the key is good for, as in 12h or 720h (default until it is revoked)."`
	Env       string        `default:"live" placeholder:"WORD" help:"What the key says it is for, as in a2ad_live_… (default live)."`

	Database `group:"database"`
	Output
}

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
		return errors.New("--expires-in: the key would have ended before it began")
	}
	if !auth.ValidEnv(c.Env) {
		return errors.New("--env: 1 to 16 small letters and digits")
	}
	if c.Tenant == "" || c.Owner == "" || len(c.Tenant) > 200 || len(c.Owner) > 200 {
		return errors.New("--tenant and --owner are from 1 to 200 bytes long")
	}
	return nil
}

// Run makes the key.
func (c *APIKeyCreateCmd) Run(ctx context.Context, app *App) error {
	slices.Sort(c.Scopes)
	slices.Sort(c.Agents)
	return c.withOperator(ctx, app, func(op operator) error {
		key, err := op.CreateKey(ctx, keySpec{Tenant: c.Tenant, Owner: c.Owner, Name: c.Name, Scopes: slices.Compact(c.Scopes), Agents: slices.Compact(c.Agents), ExpiresIn: c.ExpiresIn, Env: c.Env})
		if err != nil {
			return err
		}
		if c.json() {
			return term.JSON(app.Stdout, key)
		}
		w := tabwriter.NewWriter(app.Stdout, 0, 8, 2, ' ', 0)
		fmt.Fprintf(w, "id\t%s\ncaller\t%s\nscopes\t%s\nagents\t%s\n", key.ID, term.Cell(key.Tenant+"/"+key.Owner), strings.Join(key.Scopes, ","), keyAgents(key.Agents))
		if key.ExpiresAt != nil {
			fmt.Fprintf(w, "expires\t%s\n", term.Moment(*key.ExpiresAt))
		}
		fmt.Fprintf(w, "key\t%s\n", key.Key)
		if err := w.Flush(); err != nil {
			return err
		}
		_, err = fmt.Fprintln(app.Stderr, "The key is not kept and cannot be shown again. Send it as \"Authorization: Bearer …\", or put it into A2AD_API_KEY.")
		return err
	})
}

// keyAgents says which agents a key is for.
func keyAgents(names []string) string {
	if names == nil {
		return "all"
	}
	return strings.Join(names, ",")
}

// APIKeyLsCmd is `a2ad apikey ls`.
type APIKeyLsCmd struct {
	Tenant   string `placeholder:"T" help:"Only keys of this tenant."`
	Database `group:"database"`
	Output
}

// Run lists.
func (c *APIKeyLsCmd) Run(ctx context.Context, app *App) error {
	return c.withOperator(ctx, app, func(op operator) error {
		rows, err := op.Keys(ctx, c.Tenant)
		if err != nil {
			return err
		}
		head := []string{"KEY", "TENANT/OWNER", "SCOPES", "AGENTS", "NAME", "CREATED", "LAST USED", "EXPIRES", "REVOKED"}
		return term.Rows(&app.Console, c.json(), head, rows, func(r keyRow) []string {
			return []string{
				r.ID, term.Cell(r.Tenant + "/" + r.Owner), term.Cell(strings.Join(r.Scopes, ",")), term.Cell(keyAgents(r.Agents)), term.Cell(r.Name),
				term.Moment(r.CreatedAt), term.MomentOf(r.LastUsedAt), term.MomentOf(r.ExpiresAt), term.MomentOf(r.RevokedAt),
			}
		})
	})
}

// APIKeyRevokeCmd is `a2ad apikey revoke`.
type APIKeyRevokeCmd struct {
	IDs      []string `arg:"" name:"id" help:"Ids of the keys."`
	Database `group:"database"`
	Output
}

// Run revokes one after the other.
func (c *APIKeyRevokeCmd) Run(ctx context.Context, app *App) error {
	return c.withOperator(ctx, app, func(op operator) error {
		return each(ctx, app, c.IDs, func(id string) error {
			row, err := op.RevokeKey(ctx, id)
			if err != nil {
				return err
			}
			if c.json() {
				return term.JSON(app.Stdout, row)
			}
			_, err = fmt.Fprintf(app.Stdout, "%s revoked\n", row.ID)
			return err
		})
	})
}
