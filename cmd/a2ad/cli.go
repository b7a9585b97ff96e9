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
	Agent  AgentCmd  `cmd:"" group:"server" help:"Check agent files."`
	Health HealthCmd `cmd:"" group:"server" name:"healthcheck" help:"Check whether a running server is ready."`

	Send SendCmd `cmd:"" group:"client" help:"Send a message to an agent and follow the task."`

	Task     TaskCmd     `cmd:"" group:"operator" help:"List, show, watch, cancel, retry and purge tasks."`
	Stats    StatsCmd    `cmd:"" group:"operator" help:"Show queues, running attempts and problems on one screen."`
	Doctor   DoctorCmd   `cmd:"" group:"operator" help:"${doctor_help}"`
	Push     PushCmd     `cmd:"" group:"operator" help:"List, inspect, replay and enable webhooks."`
	Schedule ScheduleCmd `cmd:"" group:"operator" help:"List, run, pause and resume schedules."`
	Actions  ActionsCmd  `cmd:"" group:"operator" help:"Show the audit log: who did what."`
	APIKey   APIKeyCmd   `cmd:"" group:"operator" name:"apikey" help:"Create, list and revoke API keys."`
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
	{Key: "operator", Title: "Operator, on the database:"},
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
		helpVars(),
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
		describeSettings(node, node.Name == "dev")
		hideSettings(node)
	}
	return k, nil
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
	Output string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"${output_help}"`
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

// helpVars are what tags of flags refer to: lists of words, and the texts that a tag of one line has no room for.
func helpVars() kong.Vars {
	var states []string
	for _, s := range stateOrder {
		states = append(states, s.String())
	}
	return kong.Vars{
		"states":         strings.Join(states, ","),
		"states_and":     strings.Join(states, ", "),
		"webhook_states": "active,done,dead,disabled",
		"scopes_help":    scopesHelp,

		"stream_help":         "Show events as they happen, the default; --no-stream waits for the result.",
		"webhook_states_help": "Only webhooks in this state: " + webhookStates + ".",

		"reason_help":         "Why, for the clients and the audit log (default \"resumed by an operator\").",
		"retry_state_help":    "Instead of ids: tasks in one of these states: failed (default), canceled, rejected.",
		"retry_webhooks_help": "Give the new task the webhooks of the old one.",
		"actor_help":          "Only actors that begin with this: operator, \"key k1\", replica, address.",
		"expires_help":        "How long the key is valid, such as 12h or 720h (default no limit).",
		"env_help":            "A word in the key, as in a2ad_live_… (default live).",
		"doctor_help":         "Check the settings, the database and the server, and say what to fix.",
		"output_help":         "text, or json: one object per line.",
		"down_help":           "Roll back the newest migration and delete the data in its tables.",
		"replay_help":         "Deliver events again, or resume a webhook that has given up.",
		"enable_help":         "Close the circuit breaker of a destination, or enable it again.",
		"after_help":          "Deliver all events after this one again (default: what is not delivered yet).",
	}
}
