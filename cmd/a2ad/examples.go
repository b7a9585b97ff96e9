package main

import (
	"strings"

	"github.com/alecthomas/kong"
)

// examples are command lines, by the command that they show. The help of a command ends with its examples.
var examples = map[string][]string{
	"dev":         {"a2ad dev", "a2ad dev --demo", "a2ad dev --agents ./agents --listen 127.0.0.1:9000"},
	"serve":       {"A2AD_DATABASE_URL=postgres://a2ad@db/a2ad a2ad serve --agents ./agents"},
	"config":      {"a2ad config", "a2ad config -o json"},
	"healthcheck": {"a2ad healthcheck", "a2ad healthcheck --admin-listen 127.0.0.1:9464"},

	"send": {
		`a2ad send "Hello"`, "a2ad send --agent script --file report.pdf \"Summarize this\"",
		`a2ad send --task 0198f0e2-7c1e "yes"`,
	},

	"new agent": {"a2ad new agent greeter --lang python", "a2ad new agent greeter --lang shell --dir agents/greeter"},

	"context add": {
		"A2AD_API_KEY=… a2ad context add prod --server https://a2a.example.com",
		"A2AD_DATABASE_URL=postgres://localhost/a2ad a2ad context add local --database",
	},
	"context ls":  {"a2ad context ls"},
	"context rm":  {"a2ad context rm prod"},
	"context use": {"a2ad context use prod"},

	"task ls": {
		"a2ad task ls --state failed,rejected --since 24h",
		"a2ad task ls --state input-required --wide",
		"a2ad task ls --agent billing --watch",
	},
	"task show":   {"a2ad task show 0198f0e2-7c1e", "a2ad task show 0198f0e2-7c1e --tree"},
	"task watch":  {"a2ad task watch 0198f0e2-7c1e"},
	"task tail":   {"a2ad task tail --agent billing"},
	"task cancel": {"a2ad task cancel 0198f0e2-7c1e", "a2ad task cancel --agent billing --dry-run"},
	"task retry": {
		"a2ad task retry 0198f0e2-7c1e", "a2ad task retry --agent billing --since 2h",
	},
	"task resume": {"a2ad task resume 0198f0e2-7c1e", `a2ad task resume --agent billing --reason "the API is back"`},
	"task answer": {`a2ad task answer 0198f0e2-7c1e "yes"`},
	"task assign": {"a2ad task assign 0198f0e2-7c1e ann@example.com"},
	"task signal": {"a2ad task signal 0198f0e2-7c1e approved '{\"by\":\"ann\"}'"},
	"task purge": {
		"a2ad task purge 0198f0e2-7c1e", "a2ad task purge --tenant acme --owner alice",
	},

	"agent ls":     {"a2ad agent ls"},
	"agent pause":  {`a2ad agent pause billing --reason "bad release"`},
	"agent resume": {"a2ad agent resume billing"},
	"agent check":  {"a2ad agent check ./agents"},
	"agent schema": {"a2ad agent schema"},

	"worker ls":     {"a2ad worker ls"},
	"worker drain":  {"a2ad worker drain node-2", `a2ad worker drain node-2 --expire --reason "it hangs"`},
	"worker resume": {"a2ad worker resume node-2"},
	"queue ls":      {"a2ad queue ls"},

	"stats":  {"a2ad stats", "a2ad stats --usage --by day,model --since 168h"},
	"doctor": {"a2ad doctor", "a2ad doctor --quiet", "a2ad doctor --server https://a2a.example.com"},

	"push ls":           {"a2ad push ls --state dead"},
	"push attempts":     {"a2ad push attempts 0198f0e2-7c1e-7000-8000-000000000001"},
	"push destinations": {"a2ad push destinations"},
	"push replay": {
		"a2ad push replay 0198f0e2-7c1e-7000-8000-000000000001",
		"a2ad push replay --tenant acme --origin https://hooks.example:443 --since 6h",
	},
	"push enable": {"a2ad push enable --tenant acme https://hooks.example:443"},

	"schedule ls":     {"a2ad schedule ls"},
	"schedule ticks":  {"a2ad schedule ticks reports/nightly"},
	"schedule run":    {"a2ad schedule run reports/nightly"},
	"schedule pause":  {"a2ad schedule pause reports/nightly"},
	"schedule resume": {"a2ad schedule resume reports/nightly"},

	"actions": {"a2ad actions --since 24h", "a2ad actions --action task.purge -o json"},

	"apikey create": {
		"a2ad apikey create --tenant acme --owner al --scopes tasks:read,tasks:write",
		"a2ad apikey create --tenant ops --owner ann --scopes operator:read",
	},
	"job ls":   {"a2ad job ls"},
	"job show": {"a2ad job show 0198f0e2-7c1e-7000-8000-000000000001"},
	"job stop": {"a2ad job stop 0198f0e2-7c1e-7000-8000-000000000001"},

	"session ls":     {"a2ad session ls"},
	"session revoke": {"a2ad session revoke 0198f0e2-7c1e"},

	"apikey ls":     {"a2ad apikey ls --tenant acme"},
	"apikey revoke": {"a2ad apikey revoke 0198f0e2-7c1e-7000-8000-000000000001"},

	"import":         {"a2ad import --from sqlite:tasks.db --agent billing --dry-run"},
	"keys rewrap":    {"a2ad keys rewrap"},
	"migrate up":     {"a2ad migrate up"},
	"migrate down":   {"a2ad migrate down --yes"},
	"migrate status": {"a2ad migrate status"},

	"completion": {"source <(a2ad completion bash)"},
	"version":    {"a2ad version"},
}

// mostFromBelow is how many examples the help of a command shows that only has sub-commands.
const mostFromBelow = 3

// addExamples ends the help of each command with its examples. A command with sub-commands shows the first one of each.
func addExamples(node *kong.Node, path string) (first string) {
	list := examples[path]
	for _, child := range node.Children {
		if one := addExamples(child, strings.TrimSpace(path+" "+child.Name)); len(list) < mostFromBelow && one != "" {
			list = append(list, one)
		}
	}
	if len(list) == 0 {
		return ""
	}
	node.Detail = strings.TrimSpace(node.Detail+"\n\nExamples:\n\n    "+strings.Join(list, "\n    ")) + "\n"
	return list[0]
}
