// Command a2ad is the durable task server behind an A2A agent: one binary that
// serves, migrates, administers and is a client of itself.
//
// Everything that a command does starts in run, which gets its arguments, environment and streams from main. Nothing
// else in the program reads them from the process.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/term"
)

// main holds a ballast: memory that is never touched, so it uses no RAM, but counts for the garbage collector. The heap
// of a server with few streams is some MB. Without the ballast, the collector would run dozens of times a second under
// load, and scan all stacks each time.
func main() {
	ballast := make([]byte, 32<<20)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once, whatever the first one is waiting for.
	context.AfterFunc(ctx, stop)
	app := newApp(os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	app.Program = os.Args[0]
	code := app.run(ctx, os.Args[1:], os.Environ())
	stop()
	runtime.KeepAlive(ballast)
	os.Exit(code)
}

// Exit codes, which helpText lists.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2   // of the command line, or of the configuration
	exitTaskFailed  = 3   // the task ended failed, rejected or canceled
	exitTaskWaits   = 4   // the task waits for input or authentication
	exitInterrupted = 130 // Ctrl-C
)

// exitError ends the program with a code. A nil err prints nothing, because the command has printed the reason.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// App is what a command gets from the process that it runs in.
type App struct {
	term.Console
	Environ []string // of the process, for the commands that agents run; without our secrets
	Program string   // how the user called the program; "" means a2ad

	hangups func() (signals <-chan os.Signal, stop func())
	now     func() time.Time // for ages in lists; nil: time.Now

	settings []config.Value // of the selected command, for `a2ad config`
	faults   []config.Fault // of a command that reports them itself
}

// run is the whole program. environ has the form of os.Environ. It returns the exit code.
func run(ctx context.Context, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return newApp(environ, stdin, stdout, stderr).run(ctx, args, environ)
}

func newApp(environ []string, stdin io.Reader, stdout, stderr io.Writer) *App {
	env := config.ReadEnviron(environ)
	plain := env["NO_COLOR"] != "" || env["TERM"] == "dumb"
	return &App{
		Console: term.Open(stdin, stdout, stderr, plain),
		Environ: env.WithoutSecrets(environ),

		hangups: hangups,
	}
}

func (app *App) run(ctx context.Context, args, environ []string) int {
	return finish(ctx, app, runCommand(ctx, app, args, config.ReadEnviron(environ)))
}

// time returns the time that ages in lists refer to.
func (app *App) time() time.Time {
	if app.now != nil {
		return app.now()
	}
	return time.Now()
}

// program is how to call the program again in this terminal.
func (app *App) program() string { return cmp.Or(app.Program, "a2ad") }

var errInterrupted = errors.New("interrupted")

// finish prints what went wrong, unless the command has, and returns the exit code.
func finish(ctx context.Context, app *App, err error) int {
	var coded *exitError
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))):
		coded = &exitError{exitInterrupted, errInterrupted}
	case !errors.As(err, &coded):
		coded = &exitError{exitFailure, err}
	}
	if coded.err != nil {
		fmt.Fprintln(app.Stderr, "a2ad: "+term.Printable(a2a.Explain(coded.err)))
	}
	return coded.code
}

// hangups receives SIGHUP. Only servers call it: other commands end with their terminal.
func hangups() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

func runCommand(ctx context.Context, app *App, args []string, env config.Environ) error {
	if len(args) > 0 && args[0] == "help" {
		args = append(args[1:len(args):len(args)], "--help")
	}
	flags := config.Flags{}
	parser, err := newParser(ctx, &cli{}, app, flags)
	if err != nil {
		return err
	}
	if len(args) > 0 && args[0] == completeWord {
		return complete(app.Stdout, parser, args[1:])
	}
	parsed, err := parser.Parse(args)
	if errors.Is(err, errHelpShown) {
		return nil
	}
	if err != nil {
		return usageError(app, err)
	}
	if err := configure(app, parsed.Selected().Target.Addr().Interface(), flags, env); err != nil {
		return err
	}
	return parsed.Run(app)
}

// usageError says what is wrong with the command line, or shows the help of a command
// that was called without the sub-command it needs.
func usageError(app *App, err error) error {
	var pe *kong.ParseError
	if !errors.As(err, &pe) || pe.Context == nil {
		return &exitError{exitUsage, err}
	}
	node := pe.Context.Model.Node
	if sel := pe.Context.Selected(); sel != nil {
		node = sel
	}
	if len(node.Children) > 0 && pe.Context.Error == nil { // the parser understood all words, but needed another one
		pe.Context.Stdout = app.Stderr
		if err := pe.Context.PrintUsage(false); err != nil {
			return err
		}
		return &exitError{code: exitUsage}
	}
	return &exitError{exitUsage, fmt.Errorf("%w\nRun \"%s --help\" for the ways to use it", err, node.FullPath())}
}
