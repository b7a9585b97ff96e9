package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/importer"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/term"
)

// ImportCmd is `a2ad import`.
type ImportCmd struct {
	From         string `required:"" placeholder:"SOURCE" help:"@import_from"`
	Agent        string `required:"" placeholder:"NAME" help:"Agent that gets the tasks."`
	Owner        string `placeholder:"O" help:"Owner of all tasks (default: the owner in the source)."`
	Tenant       string `placeholder:"T" help:"Tenant of all tasks (default: that in the source, or default)."`
	SourceOwner  string `placeholder:"O" help:"Only tasks that have this owner in the source."`
	Running      string `enum:"skip,fail,submit" default:"skip" placeholder:"WHAT" help:"@import_running"`
	Webhooks     bool   `default:"true" negatable:"" help:"Import webhooks of tasks that have not ended (default)."`
	DryRun       bool   `help:"Report what would happen, and store nothing."`
	Table        string `placeholder:"NAME" help:"Table of the tasks (default tasks)."`
	WebhookTable string `placeholder:"NAME" help:"Table of the webhooks (default push_notification_configs)."`

	Keys           seal.Ring       `type:"setting" name:"keys" kong:"-" secret:"yes"`
	PushAllowHTTP  bool            `type:"setting" name:"push-allow-http" kong:"-" def:"off"`
	PushAllowCIDRs config.Prefixes `type:"setting" name:"push-allow-cidrs" kong:"-" def:"none"`
	Database       `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*ImportCmd) Help() string {
	return `Takes over the tasks of a server made with a2a-python or a2a-js, from its database in SQLite ` +
		`or PostgreSQL, and those of any other store from a file with one A2A Task per line.

Ids, contexts, states, times, messages, artifacts and metadata stay. A task that is here already is not stored ` +
		`again, so the command can be repeated, also after an interruption. It prints what cannot be kept. ` +
		`Secrets of webhooks are encrypted with A2AD_KEYS, and URLs are checked as the server does.

The exit code is 1 if a task could not be imported.`
}

// Validate is called by the parser.
func (c *ImportCmd) Validate() error {
	if !agents.ValidName(c.Agent) {
		return fmt.Errorf("--agent: %q is not a name of an agent", c.Agent)
	}
	return nil
}

// importProblem is a line of `a2ad import -o json`: what cannot be kept of a task.
type importProblem struct {
	Task    string `json:"task"` // its id in the source, or "line 3"
	Problem string `json:"problem"`
}

// importReport is the last line of `a2ad import -o json`.
type importReport struct {
	DryRun   bool                        `json:"dryRun"`
	States   map[string]*importer.Counts `json:"states"`
	Webhooks int                         `json:"webhooks"`
	Older    int                         `json:"older,omitempty"` // versions of tasks with a newer one before them
	Left     map[string]int              `json:"left,omitempty"`  // tasks with a member that a2ad has no place for
}

var errNotAllImported = errors.New("some tasks were not imported: their problems are above")

// Run imports.
func (c *ImportCmd) Run(ctx context.Context, app *App) error {
	source, err := importer.Open(ctx, c.From, importer.Tables{Tasks: c.Table, Webhooks: c.WebhookTable})
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer source.Close()
	return c.withStore(ctx, app, func(s *store.Store) (err error) {
		if !c.DatabaseURL.IsSet() {
			if err := c.asDev(); err != nil {
				return err
			}
		}
		report, err := importer.Import(ctx, source, s.Tasks, c.config(app))
		if printErr := c.print(app, &report); printErr != nil || err != nil {
			return errors.Join(err, printErr)
		}
		if report.Failed() {
			return errNotAllImported
		}
		return nil
	})
}

// asDev sets what dev would have, because the database is that of dev.
func (c *ImportCmd) asDev() (err error) {
	if c.Keys.Empty() {
		if c.Keys, err = config.DevKeys(c.DataDir); err != nil {
			return err
		}
	}
	if len(c.PushAllowCIDRs) == 0 {
		var dev config.Webhooks
		config.Load(config.SettingsOf(&dev, true), nil, nil)
		c.PushAllowHTTP, c.PushAllowCIDRs = dev.PushAllowHTTP, dev.PushAllowCIDRs
	}
	return nil
}

func (c *ImportCmd) config(app *App) importer.Config {
	cfg := importer.Config{
		Label: sourceLabel(c.From), Agent: c.Agent, Tenant: c.Tenant, Owner: c.Owner, SourceOwner: c.SourceOwner,
		Running: importer.Running(c.Running), DryRun: c.DryRun,
		Problem: func(task, why string) {
			if c.json() {
				p := importProblem{strings.TrimPrefix(task, "task "), why}
				term.JSON(app.Stdout, p) //nolint:errcheck // the report fails as well
				return
			}
			app.Note(term.OneLine(task + ": " + why))
		},
	}
	if c.Webhooks {
		cfg.Webhook = c.webhook
	}
	return cfg
}

// webhook checks a webhook as a server does, except that it does not know the addresses of the servers.
func (c *ImportCmd) webhook(p *a2a.PushConfig) (*webhooks.NewWebhook, error) {
	policy := push.Policy{Allow: []netip.Prefix(c.PushAllowCIDRs), AllowHTTP: c.PushAllowHTTP}
	if err := push.CheckConfig(p, policy, push.Limits{}); err != nil {
		return nil, err
	}
	if c.Keys.Empty() && (p.Token != "" || p.Credentials != "") {
		return nil, errors.New("A2AD_KEYS is not set, so its token or credentials cannot be encrypted")
	}
	u, err := policy.CheckURL(p.URL)
	if err != nil {
		return nil, err
	}
	if p.ID == "" {
		p.ID = engine.DefaultPushID
	}
	return &webhooks.NewWebhook{
		ConfigID: p.ID, URL: p.URL, Origin: push.Origin(u), Schemes: p.Schemes, Version: p.Version,
		Seal: func(row a2a.ID) (token, credentials []byte, err error) { return push.SealSecrets(c.Keys, row, p) },
		SealURL: func(row a2a.ID) (string, []byte, error) {
			return push.SealURL(c.Keys, row, p.URL)
		},
	}, nil
}

// sourceLabel names a source in the audit log, without a user, a password or the parameters, which may be secret.
func sourceLabel(from string) string {
	scheme, rest, _ := strings.Cut(from, ":")
	switch {
	case strings.HasPrefix(scheme, "sqlite"):
		file, _, _ := strings.Cut(rest, "?") // first, as a parameter may have slashes
		return "sqlite:" + filepath.Base(file)
	case strings.HasPrefix(scheme, "postgres"):
		u, err := url.Parse(from)
		if err != nil {
			return "postgres"
		}
		return "postgres://" + u.Host + u.Path
	}
	return filepath.Base(from)
}

func (c *ImportCmd) print(app *App, r *importer.Report) error {
	if c.json() {
		out := importReport{
			DryRun: c.DryRun, States: make(map[string]*importer.Counts), Webhooks: r.Webhooks, Older: r.Older,
			Left: r.Left,
		}
		for state, counts := range r.States {
			out.States[state.String()] = counts
		}
		return term.JSON(app.Stdout, out)
	}
	for _, member := range slices.Sorted(maps.Keys(r.Left)) {
		app.Note(term.OneLine(fmt.Sprintf("%s is not kept: a2ad has no place for it (in %s)", member,
			term.Count(r.Left[member], "task"))))
	}
	imported := "IMPORTED"
	if c.DryRun {
		imported = "TO IMPORT"
	}
	var states []a2a.State
	for _, state := range append(slices.Clone(stateOrder), a2a.StateNone) {
		if r.States[state] != nil {
			states = append(states, state)
		}
	}
	err := term.Rows(&app.Console, false, []string{"STATE", imported, "ALREADY HERE", "SKIPPED", "PROBLEMS"}, states,
		func(s a2a.State) []string {
			n := r.States[s]
			return []string{s.String(), number(n.Imported), number(n.Known), number(n.Skipped), number(n.Problems)}
		})
	c.remark(app, r)
	return err
}

// remark says what the table does not.
func (c *ImportCmd) remark(app *App, r *importer.Report) {
	if len(r.States) == 0 {
		app.Note("no tasks in the source")
	}
	if r.Older > 0 {
		app.Note(term.Count(r.Older, "older version") + " of these tasks left out")
	}
	if r.Webhooks > 0 {
		app.Note(term.Count(r.Webhooks, "webhook") + " with them")
	}
	skipped := 0
	for _, n := range r.States {
		skipped += n.Skipped
	}
	if skipped > 0 {
		app.Note(term.Count(skipped, "running task") + " skipped: stop the old server, then run this again with " +
			"--running fail or --running submit")
	}
}

func number(n int) string { return term.Number(int64(n)) }
