package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/scaffold"
)

// cli is the command line. A field of type "setting" is a flag, an A2AD_* variable and a default in one:
// see config.Setting.
type cli struct {
	Help helpFlag `short:"h" help:"Show the help of a command."`
	// Many programs have this flag, so users try it before they find the command.
	ShowVersion versionFlag `name:"version" hidden:"" help:"Show the version."`

	Dev DevCmd `cmd:"" group:"server" help:"Run a server with its own PostgreSQL and two demo agents, to try a2ad."`

	Serve  ServeCmd  `cmd:"" group:"server" help:"Run a server on a PostgreSQL database."`
	Config ConfigCmd `cmd:"" group:"server" help:"Show every setting, its value and its source."`
	Health HealthCmd `cmd:"" group:"server" name:"healthcheck" help:"Check whether a running server is ready."`

	Send SendCmd `cmd:"" group:"client" help:"Send a message to an agent and follow the task."`

	New NewCmd `cmd:"" group:"agent" help:"Make the project of a new agent."`

	Context  ContextCmd  `cmd:"" group:"operator" help:"Choose the server or database that commands work on."`
	Task     TaskCmd     `cmd:"" group:"operator" help:"List, show, watch, cancel, retry and purge tasks."`
	Job      JobCmd      `cmd:"" group:"operator" help:"List, show and stop bulk jobs."`
	Agent    AgentCmd    `cmd:"" group:"operator" help:"List, pause and resume agents; check agent files."`
	Worker   WorkerCmd   `cmd:"" group:"operator" help:"List, drain and resume workers."`
	Queue    QueueCmd    `cmd:"" group:"operator" help:"List the queues of agents."`
	Stats    StatsCmd    `cmd:"" group:"operator" help:"Show queues, running attempts and problems on one screen."`
	Doctor   DoctorCmd   `cmd:"" group:"operator" help:"@doctor"`
	Push     PushCmd     `cmd:"" group:"operator" help:"List, inspect, replay and enable webhooks."`
	Schedule ScheduleCmd `cmd:"" group:"operator" help:"List, run, pause and resume schedules."`
	Actions  ActionsCmd  `cmd:"" group:"operator" help:"Show the audit log: who did what."`
	APIKey   APIKeyCmd   `cmd:"" group:"operator" name:"apikey" help:"Create, list and revoke API keys."`
	Session  SessionCmd  `cmd:"" group:"operator" help:"List and end sessions of the console."`
	Import   ImportCmd   `cmd:"" group:"operator" help:"@import"`
	Keys     KeysCmd     `cmd:"" group:"operator" help:"Rotate the keys that encrypt stored secrets."`
	Migrate  MigrateCmd  `cmd:"" group:"operator" help:"Apply or roll back database migrations."`

	Completion CompletionCmd `cmd:"" group:"about" help:"Generate shell completion."`
	Version    VersionCmd    `cmd:"" group:"about" help:"Show the version."`
}

const helpText = `The durable task server behind an A2A agent, on PostgreSQL.

To try it, run "a2ad dev" and follow the instructions that it prints.

Exit codes: 0 success; 1 failure; 2 invalid command line or configuration;
3 the task failed, was rejected or was canceled; 4 the task waits for input
or authentication; 130 interrupted. Doctor differs: 1 warnings, 2 faults.`

var helpGroups = []kong.Group{
	{Key: "commands", Title: "Commands:"},
	{Key: "server", Title: "Server:"},
	{Key: "client", Title: "Client:"},
	{Key: "agent", Title: "Author of an agent:"},
	{Key: "operator", Title: "Operator, on a server or on the database:"},
	{Key: "about", Title: "About:"},
}

// newParser builds the command line. It puts the text of settings that are given as flags into flags.
func newParser(ctx context.Context, c *cli, app *App, flags config.Flags) (*kong.Kong, error) {
	k, err := kong.New(c,
		kong.Name("a2ad"),
		kong.Description(helpText),
		kong.NoDefaultHelp(),
		kong.Writers(app.Stdout, app.Stderr),
		kong.ConfigureHelp(kong.HelpOptions{
			Compact: true, NoExpandSubcommands: true, NoAppDescFormat: true, WrapUpperBound: 100,
		}),
		kong.ExplicitGroups(allGroups()),
		kong.NamedMapper("setting", settingMapper{flags}),
		wordLists(),
		kong.Bind(app),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	if err != nil {
		return nil, fmt.Errorf("build the command line: %w", err)
	}
	for _, f := range k.Model.Flags {
		if f.Name == "help" {
			k.Model.HelpFlag = f
		}
	}
	for _, node := range k.Model.Children {
		expandHelp(node)
		addExamples(node, node.Name)
		describeSettings(node, node.Name == "dev")
		hideSettings(node)
	}
	return k, nil
}

// expandHelp gives commands, flags and arguments the texts that their tags name.
func expandHelp(node *kong.Node) {
	expand := func(help *string) {
		if name, ok := strings.CutPrefix(*help, "@"); ok {
			*help = longHelp[name]
		}
	}
	expand(&node.Help)
	for _, f := range node.Flags {
		expand(&f.Help)
	}
	for _, p := range node.Positional {
		expand(&p.Help)
	}
	for _, child := range node.Children {
		expandHelp(child)
	}
}

// describeSettings adds its variable and default to the help of each setting.
func describeSettings(node *kong.Node, dev bool) {
	for _, f := range node.Flags {
		if f.Tag.Type == "setting" {
			f.Help = describe(f, dev)
		}
	}
	for _, child := range node.Children {
		describeSettings(child, dev)
	}
}

// notForServe are flags that have no effect on serve, which starts no PostgreSQL.
var notForServe = []string{"data-dir", "pg-bindir"}

// forDev are the settings that people change who try a2ad. The help of dev shows no others, so that it stays short.
var forDev = []string{
	"database-url", "data-dir", "pg-bindir", "listen", "admin-listen", "grpc-listen", "auth", "agents", "default-agent",
	"workers", "lease-ttl", "run-deadline", "idle-timeout", "max-attempts", "log-level", "log-format",
}

// hideSettings hides flags that are of no use to the users of a command. They are accepted, because their variables
// are.
func hideSettings(node *kong.Node) {
	for _, f := range node.Flags {
		switch {
		case f.Tag.Type != "setting":
		case node.Name == "serve" && slices.Contains(notForServe, f.Name),
			node.Name == "dev" && !slices.Contains(forDev, f.Name):
			f.Hidden = true
		}
	}
}

// errHelpShown ends the parsing: the help, or the version, is what the user asked for.
var errHelpShown = errors.New("help shown")

// helpFlag prints the help of its command. Unlike the flag of kong, it ends parsing with an error and
// not the process.
type helpFlag bool

func (helpFlag) BeforeReset(kctx *kong.Context) error {
	if err := kctx.PrintUsage(false); err != nil {
		return err
	}
	return errHelpShown
}

// versionFlag does what the command version does.
type versionFlag bool

func (versionFlag) BeforeReset(app *App) error {
	if err := (&VersionCmd{}).Run(app); err != nil {
		return err
	}
	return errHelpShown
}

// describe returns the help of a setting's flag: what it means, its variable and its default.
func describe(f *kong.Flag, dev bool) string {
	s := config.FromTag(f.Tag.Get)
	if d := f.Tag.Get("dev"); dev && d != "" {
		s.Default = d
	}
	note := s.Name
	switch {
	case s.Default != "":
		note += ", default " + s.Default
	case s.Auto != "":
		note += ", default: " + s.Auto
	}
	return strings.TrimSuffix(s.Help, ".") + " (" + note + ")."
}

// settingMapper keeps the text of a setting's flag for config.Load, so that its faults are reported
// together with those of the environment.
type settingMapper struct{ flags config.Flags }

func (m settingMapper) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	name := ctx.Value.Name
	if m.IsBoolFromValue(target) {
		m.flags[name] = "on"
		if ctx.Scan.Peek().Type == kong.FlagValueToken {
			m.flags[name] = fmt.Sprint(ctx.Scan.Pop().Value)
		}
		return nil
	}
	var text string
	if err := ctx.Scan.PopValueInto("value", &text); err != nil {
		return err
	}
	m.flags[name] = text
	return nil
}

func (settingMapper) IsBoolFromValue(v reflect.Value) bool { return v.Kind() == reflect.Bool }

func (settingMapper) PlaceHolder(f *kong.Flag) string {
	return config.Placeholder(f.Name, f.Target.Interface())
}

// Output is the choice between output for people and for programs.
type Output struct {
	Output string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"@output"`
}

func (o Output) json() bool { return o.Output == "json" }

// allGroups are the titles of commands and of settings.
func allGroups() []kong.Group {
	all := slices.Clone(helpGroups)
	for _, g := range config.Groups {
		all = append(all, kong.Group{Key: g.Key, Title: g.Title})
	}
	return all
}

// webhookStates are the words of `push ls --state`, as a person reads them.
const webhookStates = "active, done, dead or disabled"

// wordLists are the lists of words that tags of flags refer to. They are few and short, because kong looks for
// variables in each of them once for each flag.
func wordLists() kong.Vars {
	return kong.Vars{
		"states_and":     stateNames(),
		"webhook_states": "active,done,dead,disabled",
		"languages":      strings.Join(scaffold.Languages, ","),
	}
}

func stateNames() string {
	var states []string
	for _, s := range stateOrder {
		states = append(states, s.String())
	}
	return strings.Join(states, ", ")
}

// longHelp are the texts that a tag of one line has no room for. The tag names its text: help:"@stream".
var longHelp = map[string]string{
	"scopes":         scopesHelp,
	"stream":         "Show events as they happen, the default; --no-stream waits for the result.",
	"webhook_states": "Only webhooks in this state: " + webhookStates + ".",
	"reason":         "Why, for the clients and the audit log (default \"resumed by an operator\").",
	"purge_reason":   "Why, for the audit log (default \"purged by an operator\").",
	"retry_state":    "Instead of ids: tasks in one of these states: failed (default), canceled, rejected.",
	"cancel_state":   "Instead of ids: tasks in one of these states, of those that have not ended.",
	"job_state":      "Only jobs in this state: running, done, stopped or failed.",
	"retry_webhooks": "Give the new task the webhooks of the old one.",
	"actor":          "Only actors that begin with this: operator, \"key k1\", replica, address.",
	"usage_by":       "What to distinguish: day, tenant, owner, agent, model (default agent,model).",
	"usage_since":    "With --usage: since the day of this time, or how long ago (default 30 days).",
	"expires":        "How long the key is valid, such as 12h or 720h (default no limit).",
	"env":            "A word in the key, as in a2ad_live_… (default live).",
	"lang":           "python, typescript, go or shell.",
	"clone":          "A clone of a2ad, which has the libraries (default: the one that contains a2ad).",
	"import":         "Take over the tasks of an SDK's server.",
	"import_from":    "sqlite:FILE, postgres://…, or a FILE.jsonl with one task per line.",
	"import_running": "What to do with running tasks: skip (default), fail, or submit them again.",
	"doctor":         "Check the settings, the database and the server, and say what to fix.",
	"output":         "text, or json: one object per line.",
	"down":           "Roll back the newest migration and delete the data in its tables.",
	"replay":         "Deliver events again, or resume a webhook that has given up.",
	"enable":         "Close the circuit breaker of a destination, or enable it again.",
	"after":          "Deliver all events after this one again (default: what is not delivered yet).",
}
