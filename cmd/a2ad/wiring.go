package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/devpg"
	"github.com/a2ad/a2ad/internal/store"
)

// This file is where commands meet the packages that do the work.

// runServe is the long-running service: on a database and agents that somebody set up.
func runServe(ctx context.Context, app *App, cfg config.Config) error {
	told := ctx
	ctx, stop := outlive(told, cfg.DrainDelay)
	defer stop()
	reload := app.newReload(stop)
	defer reload.close()
	files, err := loadAgents(cfg, nil)
	if err != nil {
		return err
	}
	printWarnings(app.Stderr, files)
	r, err := openReplica(ctx, app, cfg, files)
	if err != nil {
		return err
	}
	r.reload, reload.load = reload, func() ([]agents.File, error) { return loadAgents(cfg, nil) }
	switch err := r.connect(ctx, told); {
	case errors.Is(err, errStoppedWaiting):
		r.logger.InfoContext(ctx, "stopped", "replica", r.name, "err", err)
		return nil
	case err != nil:
		return err
	}
	return r.run(ctx, told)
}

// outlive returns a context that ends with the cause of ctx, some time later, or when stop is called.
func outlive(ctx context.Context, by time.Duration) (later context.Context, stop context.CancelFunc) {
	later, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
		case <-later.Done():
			return
		}
		timer := time.NewTimer(by)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(context.Cause(ctx))
		case <-later.Done():
		}
	}()
	return later, func() {
		cancel(context.Canceled)
		<-done
	}
}

// checkDatabase refuses a schema that is too old or too new, and warns of a login that may too much.
func (r *replica) checkDatabase(ctx context.Context) error {
	if err := r.store.CheckSchema(ctx); err != nil {
		return err
	}
	login, super, err := r.store.SuperuserLogin(ctx)
	if super {
		r.logger.WarnContext(ctx, "A2AD_DATABASE_URL logs in as a superuser; a member of a2a_app and a2a_worker suffices", "login", login)
	}
	return err
}

// runDev is a whole server on this machine: database, schema and demo agents too.
func runDev(ctx context.Context, app *App, cfg config.Config) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reload := app.newReload(stop)
	defer reload.close()
	files, err := loadAgents(cfg, agents.Builtin())
	if err != nil {
		return err
	}
	printWarnings(app.Stderr, files)
	logger := newLogger(cfg.Logs, app.Stderr)
	if err := os.MkdirAll(cfg.DataDir, 0o755); err != nil {
		return fmt.Errorf("A2AD_DATA_DIR: %w", err)
	}
	if cfg.Keys.Empty() {
		if cfg.Keys, err = config.DevKeys(cfg.DataDir); err != nil {
			return err
		}
	}
	if !cfg.DatabaseURL.IsSet() {
		pg, err := devpg.Start(ctx, devpg.Config{Dir: cfg.DataDir, BinDir: cfg.PGBinDir, Logger: logger})
		if err != nil {
			return err
		}
		defer func() {
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), devStopTimeout)
			defer cancel()
			err = errors.Join(err, pg.Stop(stop))
		}()
		url, err := pg.EnsureDatabase(ctx, devDatabase)
		if err != nil {
			return err
		}
		cfg.DatabaseURL = config.NewSecret(url)
	}
	waits := func(text string) { logger.WarnContext(ctx, text) } // a line of the log, like all that follows
	if err := store.MigrateUp(ctx, cfg.DatabaseURL.Reveal(), waits); err != nil {
		return err
	}
	r, err := openReplica(ctx, app, cfg, files)
	if err != nil {
		return err
	}
	r.reload, reload.load = reload, func() ([]agents.File, error) { return loadAgents(cfg, agents.Builtin()) }
	if err := r.connect(ctx, ctx); err != nil {
		return err
	}
	printWelcome(app.Stdout, r)
	return r.run(ctx, ctx)
}

const devStopTimeout = 20 * time.Second

// loadAgents reads the agent files, adds the built-in agents whose names are free, and
// settles which one is the default.
func loadAgents(cfg config.Config, builtin []agents.File) ([]agents.File, error) {
	var files []agents.File
	if cfg.Agents != "" {
		var err error
		if files, err = agents.Load(cfg.Agents); err != nil {
			return nil, err
		}
	}
	taken := make(map[string]bool)
	for _, f := range files {
		taken[f.Agent.Name] = true
	}
	own := len(files)
	for _, f := range builtin {
		if !taken[f.Agent.Name] {
			f.Agent.Default = false
			files = append(files, f)
		}
	}
	return files, chooseDefault(files, own, cfg.DefaultAgent)
}

func printWarnings(w io.Writer, files []agents.File) {
	for _, f := range files {
		for _, warning := range f.Warnings {
			fmt.Fprintln(w, "a2ad: warning: "+warning.String())
		}
	}
}

// chooseDefault marks the agent that answers at /: the one that was asked for, else the one
// whose file says so, else the only one that was given, else echo.
func chooseDefault(files []agents.File, own int, wanted string) error {
	if wanted == "" {
		for _, f := range files {
			if f.Agent.Default {
				return nil
			}
		}
		if wanted = "echo"; own == 1 {
			wanted = files[0].Agent.Name
		}
	}
	found := false
	for i := range files {
		files[i].Agent.Default = files[i].Agent.Name == wanted
		found = found || files[i].Agent.Default
	}
	if !found {
		return &noSuchAgentError{wanted}
	}
	return nil
}

// noSuchAgentError says that the default agent is none of those that there are.
type noSuchAgentError struct{ name string }

func (e *noSuchAgentError) Error() string { return "A2AD_DEFAULT_AGENT: " + e.text() }

func (e *noSuchAgentError) text() string {
	return fmt.Sprintf("no agent is called %s; mark one file with default: true, or name one", e.name)
}

// printWelcome shows where dev answers, where its tasks are, and a line to try.
func printWelcome(w io.Writer, r *replica) {
	base := r.base()
	access := "no authentication, loopback only"
	if r.cfg.Auth != config.AuthNone {
		access = "callers sign in"
	}
	fmt.Fprintf(w, "\na2ad %s, development mode: %s\n\n", version, access)
	for _, m := range r.crew {
		at := base + "/agents/" + m.Agent.Name
		if m.Agent.Default {
			at = base + "/"
		}
		fmt.Fprintf(w, "  %-10s %s\n", m.Agent.Name, at)
	}
	switch {
	case r.grpc != nil:
		fmt.Fprintf(w, "  %-10s %s\n", "gRPC", r.grpc.Addr())
	case r.cfg.GRPCListen != "":
		fmt.Fprintf(w, "  %-10s %s\n", "gRPC", r.api.Addr())
	}
	if r.admin != nil {
		fmt.Fprintf(w, "  %-10s http://%s/readyz\n", "health", r.admin.Addr())
	}
	fmt.Fprintf(w, "  %-10s %s\n", "database", config.MaskDSN(r.cfg.DatabaseURL.Reveal()))
	fmt.Fprintf(w, `
Try it:

  curl -s %s/ -H 'Content-Type: application/json' -d '{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"hello"}]}}}'

or, in another terminal:  ./bin/a2ad send%s hello
Stop with Ctrl-C. Tasks are kept in the database.

`, base, urlFlag(base))
}

func urlFlag(base string) string {
	if base == "http://127.0.0.1:8080" {
		return ""
	}
	return " --url " + base
}
