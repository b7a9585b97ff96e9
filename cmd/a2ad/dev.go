package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/console"
	"github.com/a2ad/a2ad/internal/demo"
	"github.com/a2ad/a2ad/internal/replica"
	"github.com/a2ad/a2ad/internal/store/operate"
)

// DevCmd is `a2ad dev`.
type DevCmd struct {
	config.Config
	Demo bool `help:"Fill the server with a believable day of tasks, and go on with more of them."`
}

// Help is shown below the usage line.
func (*DevCmd) Help() string {
	return `Without A2AD_DATABASE_URL, it starts its own PostgreSQL under --data-dir ` +
		`and keeps the data between runs. ` +
		`It has no authentication and listens on loopback only. Not for production.

Flags win over A2AD_* variables, which win over defaults. dev accepts all flags of serve; ` +
		`"a2ad config --dev -v" shows all settings.`
}

func (c *DevCmd) devDefaults() bool { return true }

func (c *DevCmd) check() []config.Fault {
	return append(c.Check(), replica.CheckAgents(&c.Config, c.builtin())...)
}

// builtin returns the agents that need no file.
func (c *DevCmd) builtin() []agents.File {
	if c.Demo {
		return append(agents.Builtin(), agents.Demo()...)
	}
	return agents.Builtin()
}

const devStopTimeout = 20 * time.Second

// Run starts what a server needs on this machine, and serves until the context ends.
func (c *DevCmd) Run(ctx context.Context, app *App) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	o, closeOptions, err := app.replicaOptions(&c.Config, c.builtin(), stop)
	defer closeOptions()
	if err != nil {
		return err
	}
	o.Expected, o.Doctor = ownChoices(app.settings), app.checkInstallation(true)
	if c.Demo && o.Expected["A2AD_PUSH_RETRY"] {
		o.Config.PushRetry = demoRetries
	}
	stopDatabase, err := startDev(ctx, &o.Config, o.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopDatabase()) }()
	waits := func(text string) { o.Log.WarnContext(ctx, text) } // in the log, like all lines that follow
	if err := operate.MigrateUp(ctx, o.Config.DatabaseURL.Reveal(), waits); err != nil {
		return err
	}
	r, err := replica.Open(ctx, o)
	if err != nil {
		return err
	}
	if err := r.Connect(ctx, ctx); err != nil {
		return err
	}
	printWelcome(app.Stdout, app.program(), &o.Config, r)
	if c.Demo {
		return runDemo(ctx, stop, &o, r)
	}
	return r.Run(ctx, ctx)
}

// demoRetries let a webhook of the demo be given up within seconds. The usual ones take two days.
var demoRetries = config.Durations{0, 2 * time.Second, 4 * time.Second}

// runDemo serves, and fills the server with the demo. The server goes on if the demo cannot.
func runDemo(ctx context.Context, stop context.CancelFunc, o *replica.Options, r *replica.Replica) error {
	s, err := openStore(ctx, o.Config.DatabaseURL.Reveal())
	if err != nil {
		return err
	}
	defer s.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := demo.Run(ctx, demo.Config{Tasks: s.Tasks, Search: s.Operate, URL: r.Addresses().API, Logger: o.Log})
		if err != nil && ctx.Err() == nil {
			o.Log.ErrorContext(ctx, "the demo has ended", "err", err)
		}
	}()
	err = r.Run(ctx, ctx)
	stop()
	<-ended
	return err
}

// ownChoices returns the settings that the user left to dev: a warning about them would be one that dev caused.
func ownChoices(settings []config.Value) map[string]bool {
	own := map[string]bool{}
	for _, v := range settings {
		own[v.Name] = v.Source == "" || v.Source == "default"
	}
	return own
}

// startDev fills in the keys and the database of dev, where they are not set.
func startDev(ctx context.Context, cfg *config.Config, log *slog.Logger) (stop func() error, err error) {
	stop = func() error { return nil }
	if err := os.MkdirAll(cfg.DataDir, 0o755); err != nil {
		return stop, fmt.Errorf("A2AD_DATA_DIR: %w", err)
	}
	if cfg.Keys.Empty() {
		if cfg.Keys, err = config.DevKeys(cfg.DataDir); err != nil {
			return stop, err
		}
	}
	if cfg.DatabaseURL.IsSet() {
		return stop, nil
	}
	url, stopPostgres, err := startPostgres(ctx, cfg, log)
	if err != nil {
		return stop, err
	}
	cfg.DatabaseURL = config.NewSecret(url)
	return stopPostgres, nil
}

const tryIt = `
Try it:

  curl -s %s/ -H 'Content-Type: application/json' -d '` +
	`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m1",` +
	`"role":"user","parts":[{"kind":"text","text":"hello"}]}}}'

or, in another terminal:  %s send%s hello
Stop with Ctrl-C. Tasks are kept in the database.

`

// printWelcome shows where dev answers, where its tasks are, and a line to try.
func printWelcome(w io.Writer, program string, cfg *config.Config, r *replica.Replica) {
	at := r.Addresses()
	access := "no authentication, loopback only"
	if cfg.Auth != config.AuthNone {
		access = "callers sign in"
	}
	fmt.Fprintf(w, "\na2ad %s, development mode: %s\n\n", version, access)
	line := func(name, text string) { fmt.Fprintf(w, "  %-10s %s\n", name, text) }
	for _, a := range r.Agents() {
		if a.Default {
			line(a.Name, at.API+"/")
		} else {
			line(a.Name, at.API+"/agents/"+a.Name)
		}
	}
	line("console", at.API+console.Prefix+"/")
	if at.GRPC != "" {
		line("gRPC", at.GRPC)
	}
	if at.Admin != "" {
		line("health", "http://"+at.Admin+"/readyz")
	}
	line("database", config.MaskDSN(cfg.DatabaseURL.Reveal()))
	flag := ""
	if at.API != "http://127.0.0.1:8080" {
		flag = " --url " + at.API
	}
	fmt.Fprintf(w, tryIt, at.API, program, flag)
}
