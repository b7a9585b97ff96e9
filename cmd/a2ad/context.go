package main

import (
	"errors"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/contexts"
	"github.com/a2ad/a2ad/internal/term"
)

// ContextCmd is `a2ad context`.
type ContextCmd struct {
	Add ContextAddCmd `cmd:"" group:"commands" help:"Add or replace a context."`
	Use ContextUseCmd `cmd:"" group:"commands" help:"Make a context the current one."`
	Ls  ContextLsCmd  `cmd:"" group:"commands" help:"List contexts."`
	Rm  ContextRmCmd  `cmd:"" group:"commands" help:"Remove a context."`
}

// Help is shown below the usage line.
func (*ContextCmd) Help() string {
	return `A context is a server with an API key, or a database. Commands of clients and operators work on the ` +
		`current context, unless a flag or a variable says where they work. ` +
		`A2AD_CONTEXT names another context for one command. ` +
		`The contexts are in a2ad/contexts.json below XDG_CONFIG_HOME, or below .config in the home directory.`
}

// contextFile reads the contexts of the person at the terminal.
func contextFile(app *App) (*contexts.File, error) {
	env := config.ReadEnviron(app.Environ)
	return contexts.Load(contexts.Path(func(name string) string { return env[name] }))
}

// ContextAddCmd is `a2ad context add`.
type ContextAddCmd struct {
	Name     string         `arg:"" help:"Name of the context."`
	Server   config.BaseURL `placeholder:"URL" help:"The context is this server, with the key in A2AD_API_KEY."`
	Database bool           `help:"The context is the database in A2AD_DATABASE_URL."`

	APIKey      config.Secret `type:"setting" name:"api-key" kong:"-" secret:"yes"`
	DatabaseURL config.Secret `type:"setting" name:"database-url" kong:"-" secret:"yes"`
}

// Help is shown below the usage line.
func (*ContextAddCmd) Help() string {
	return `The key, or the URL of the database, is stored in a file that only its owner can read. ` +
		`The first context becomes the current one.`
}

// Validate is called by the parser.
func (c *ContextAddCmd) Validate() error {
	if (c.Server != "") == c.Database {
		return errors.New("give --server URL or --database")
	}
	return nil
}

// Run adds.
func (c *ContextAddCmd) Run(app *App) error {
	added := contexts.Context{Server: string(c.Server), APIKey: c.APIKey.Reveal()}
	if c.Database {
		if !c.DatabaseURL.IsSet() {
			return errors.New("set A2AD_DATABASE_URL")
		}
		added = contexts.Context{Database: c.DatabaseURL.Reveal()}
	}
	return changeContexts(app, func(f *contexts.File) error { return f.Set(c.Name, added) })
}

// changeContexts changes the file, and says which context is the current one.
func changeContexts(app *App, change func(*contexts.File) error) error {
	f, err := contextFile(app)
	if err != nil {
		return err
	}
	if err := change(f); err != nil {
		return err
	}
	if err := f.Save(); err != nil {
		return err
	}
	text := "the current context is " + f.Current
	if f.Current == "" {
		text = "there is no current context"
	}
	app.Note(text)
	return nil
}

// ContextUseCmd is `a2ad context use`.
type ContextUseCmd struct {
	Name string `arg:"" help:"Name of the context."`
}

// Run makes the context the current one.
func (c *ContextUseCmd) Run(app *App) error {
	return changeContexts(app, func(f *contexts.File) error {
		_, err := f.Get(c.Name)
		f.Current = c.Name
		return err
	})
}

// ContextRmCmd is `a2ad context rm`.
type ContextRmCmd struct {
	Name string `arg:"" help:"Name of the context."`
}

// Run removes.
func (c *ContextRmCmd) Run(app *App) error {
	return changeContexts(app, func(f *contexts.File) error { return f.Remove(c.Name) })
}

// ContextLsCmd is `a2ad context ls`.
type ContextLsCmd struct{ Output }

// contextRow is a context without its secrets.
type contextRow struct {
	Name     string `json:"name"`
	Current  bool   `json:"current"`
	Server   string `json:"server,omitempty"`
	Database string `json:"database,omitempty"` // without its password
	HasKey   bool   `json:"hasKey"`
}

// Run lists.
func (c *ContextLsCmd) Run(app *App) error {
	f, err := contextFile(app)
	if err != nil {
		return err
	}
	var rows []contextRow
	for _, name := range f.Names() {
		x := f.Contexts[name]
		row := contextRow{Name: name, Current: name == f.Current, Server: x.Server, HasKey: x.APIKey != ""}
		if x.Database != "" {
			row.Database = config.MaskDSN(x.Database)
		}
		rows = append(rows, row)
	}
	return printContexts(app, c.json(), rows)
}

func printContexts(app *App, asJSON bool, rows []contextRow) error {
	head := []string{"CURRENT", "NAME", "SERVER OR DATABASE", "SIGNS IN"}
	return term.List(&app.Console, asJSON, head, nil, rows, func(r contextRow) []string {
		current, key := "", "no"
		if r.Current {
			current = "*"
		}
		if r.HasKey {
			key = "yes"
		}
		return []string{current, term.Cell(r.Name), term.Cell(r.Server + r.Database), key}
	})
}
