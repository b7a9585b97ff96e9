// Bench measures a2ad on the machine it runs on and prints each figure beside its baseline and its target: `make
// bench`.
//
// It starts a private PostgreSQL with full durability, builds the server and runs it as separate processes. It makes
// the load itself, checks every answer, and stops what it started. Compared sides run in turns (A B A B), so that a
// busy machine disturbs both. Other figures are CPU time per task, because a rate without a comparison says little.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// experiment measures one or more figures on its own database.
type experiment struct {
	name string
	what string
	run  func(b *bench, ctx context.Context) error
}

func experiments() []experiment {
	return []experiment{
		{"submit", "grouped submits against plain transactions", (*bench).submit},
		{"send", "blocking sends to echo over HTTP", (*bench).send},
		{"peers", "sends and streams of tokens, against the official servers for Go and JavaScript", (*bench).peers},
		{"ready", "start of a server until it is ready", (*bench).ready},
		{"drain", "claim, events and fenced finish of a full queue, against River", (*bench).drain},
		{"claim", "claim from a long queue against a short one", (*bench).claim},
		{"snapshot", "tasks and webhooks while a snapshot is held", (*bench).snapshot},
		{"flush", "grouped submits with a slow disk", (*bench).flush},
		{"chunk", "append to a long task against a short one", (*bench).chunk},
		{"replay", "resume of a stream from its beginning", (*bench).replay},
		{"step", "record of a step against that of an event", (*bench).step},
		{"recorded", "recorded steps on their way to the next attempt", (*bench).recorded},
		{"sleepers", "claims beside many tasks that wait for a time", (*bench).sleepers},
		{"timers", "many waits that end at the same time", (*bench).timers},
		{"calls", "a task that calls 100 others, against 101 tasks", (*bench).calls},
		{"dbos", "steps per second, against DBOS's Go library", (*bench).dbos},
		{"sdk", "a worker of the Python library, and its steps against DBOS's for Python", (*bench).sdk},
		{"crossing", "commit on one replica to the client of another", (*bench).crossing},
		{"fanout", "many subscribers of one task", (*bench).fanout},
		{"push", "webhooks: how many, how soon, and beside ones that hang", (*bench).push},
		{"parked", "claims of webhooks beside many of a destination that is down", (*bench).pushDead},
		{"plugs", "agents over HTTP against one in process, and one that floods", (*bench).plugs},
		{"pull", "remote workers that claim over HTTP: rate, delay, and their cost at rest", (*bench).pull},
		{"agents", "a thousand agents: transactions at rest, and how soon tasks are picked up", (*bench).agents},
		{"auth", "blocking sends with an API key against sends without authentication", (*bench).auth},
		{"answer", "what answers cost, against the official Go server", (*bench).answer},
		{"silent", "sends after all connections to PostgreSQL fell silent", (*bench).silent},
		{"starve", "reads while many requests wait, on a small pool", (*bench).starve},
		{"timing", "whether response times of refusals reveal which tasks exist", (*bench).timing},
		{"observe", "what metrics and the log cost", (*bench).observe},
		{"list", "pages of the list of an owner with very many tasks", (*bench).list},
		{"retire", "retention, and its effect on sends", (*bench).retire},
		{"capacity", "very many ended tasks: their size, and what they cost other operations", (*bench).capacity},
		{"memory", "memory of a replica under attack, and response times of another owner meanwhile", (*bench).memory},
		{"idle", "memory and connections of idle streams", (*bench).idle},
	}
}

type options struct {
	run     string
	quick   bool
	format  string
	write   string
	profile string
	river   bool
	dbos    bool
	streams int
	tasks   int
	data    string
	limit   time.Duration
	params  paramFlag
	set     paramFlag
	pglog   string
	server  string
	sql     bool
}

func main() {
	ballast := make([]byte, 32<<20) // as in cmd/a2ad
	defer runtime.KeepAlive(ballast)
	var o options
	flag.StringVar(&o.run, "run", "", "only experiments whose name matches this `regexp`")
	flag.BoolVar(&o.quick, "quick", false, "shorter and fewer runs: for a quick look, not for the record")
	flag.StringVar(&o.format, "o", "text", "`format` of the result: text or json")
	flag.StringVar(&o.write, "write", "",
		"rewrite the figures in this `file`, for example docs/explanation/performance.md, and the chart next to it")
	flag.StringVar(&o.profile, "profile", "", "put CPU profiles of the server into this `directory`")
	flag.BoolVar(&o.river, "river", true, "build River's bench from the module proxy and run it for comparison")
	flag.BoolVar(&o.dbos, "dbos", true, "build DBOS from the module proxy and run it for comparison")
	flag.IntVar(&o.streams, "streams", 4000, "number of idle streams")
	flag.IntVar(&o.tasks, "tasks", 0, "number of ended tasks of the experiment capacity; 0: a million, or 200,000")
	flag.StringVar(&o.data, "data", "",
		"keep the cluster in this `directory`, where the next run finds the tasks of capacity again")
	flag.DurationVar(&o.limit, "limit", 30*time.Minute, "give up after this long")
	flag.StringVar(&o.pglog, "pglog", "", "copy what PostgreSQL logs to this `file`, for auto_explain")
	flag.StringVar(&o.server, "server", "",
		"run this a2ad `binary` (for example an older one) instead of one built from this tree; its schema must match")
	flag.BoolVar(&o.sql, "statements", false,
		"show the statements that took longest, by pg_stat_statements (which costs some time itself)")
	flag.Var(&o.set, "set", "`A2AD_NAME=value` setting for the server, repeatable")
	flag.Var(&o.params, "pg", "`name=value` setting for PostgreSQL, repeatable")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "bench measures a2ad. Experiments:")
		for _, e := range experiments() {
			fmt.Fprintf(flag.CommandLine.Output(), "  %-10s %s\n", e.name, e.what)
		}
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	missed, err := measure(ctx, o, os.Stdout)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err, cause(err))
		os.Exit(2)
	case missed:
		os.Exit(1)
	}
}

var errLimit = errors.New("took longer than -limit")

// measure runs the selected experiments. missed reports whether a target was missed.
func measure(ctx context.Context, o options, w io.Writer) (missed bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, errLimit)
	defer cancel()
	selected, err := regexp.Compile(o.run)
	if err != nil {
		return false, fmt.Errorf("-run: %w", err)
	}
	if o.format != "text" && o.format != "json" {
		return false, fmt.Errorf("-o: %q is neither text nor json", o.format)
	}
	if o.write != "" && o.run != "" && !selected.MatchString("peers") {
		return false, errPartial
	}
	b, err := open(ctx, o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if o.format == "text" {
		b.report.to = w
		b.report.head(w)
	}
	for _, e := range experiments() {
		if !selected.MatchString(e.name) {
			continue
		}
		b.log.Info("measure", "experiment", e.name)
		b.report.begin(e.name)
		if err := e.run(b, ctx); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return false, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	b.report.Machine.LoadAfter = loadAverage()
	if o.format == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		err = enc.Encode(b.report)
	} else {
		b.report.tail(w)
	}
	if err == nil && o.write != "" {
		err = b.report.rewrite(o.write, o.run == "")
	}
	return b.report.missed(), err
}

// paramFlag collects name=value pairs.
type paramFlag map[string]string

func (p *paramFlag) String() string { return "" }

// Set adds one pair.
func (p *paramFlag) Set(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok {
		return errors.New("write name=value")
	}
	if *p == nil {
		*p = paramFlag{}
	}
	(*p)[name] = value
	return nil
}

func newLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// cause returns the inner error that the message for clients hides.
func cause(err error) string {
	var e *a2a.Error
	if errors.As(err, &e) && e.Unwrap() != nil {
		return fmt.Sprintf("(%v)", e.Unwrap())
	}
	return ""
}
