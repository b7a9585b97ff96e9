// Package agents reads agent files: the name of an agent, its card, and the program that does its
// work. It checks everything that the files themselves can show, and reports the errors of all
// files together. It also says which messages an agent accepts. It starts nothing.
//
// # Form
//
// YAML, or JSON if the name ends in .json, with one agent per file. Anchors, aliases and tags are
// not part of the form.
//
//	name: words                  # path segment under /agents/; required
//	description: Counts words.   # required
//	version: 1.0.0               # default 1.0.0
//	documentation_url, icon_url  # http or https
//	provider: {organization: Example, url: https://example.com}
//	skills:                      # default: one skill made of name and description
//	  - {id: count, name: Count words, description: …, tags: [text], examples: […],
//	     input_modes: […], output_modes: […]}
//	input_modes, output_modes    # media types; the default goes by the executor
//	default: true                # the agent that answers at /
//	executor: {echo: {}}         # or script, exec, http, a2a, pull; required
//	limits: {concurrency: 8, max_attempts: 5, backoff: 1s, lease_ttl: 30s, deadline: 1h, idle_timeout: 5m}
//	on_busy: queue               # or reject
//	on_lost_lease: retry         # or fail, or input-required
//	retention: 720h              # or never, or {completed: 24h, failed: never, canceled: 1h, rejected: 1h, log: 1h}
//	dedupe: message_id
//	direct_reply: false          # or true: it may answer with a Message instead of a task
//	push: on                     # or off: no webhooks
//	schedules:                   # tasks at certain times
//	  - {name: daily, cron: "0 8 * * 1-5", timezone: Europe/Berlin, owner: reports, tenant: default,
//	     message: Write the report., overlap: skip, catch_up: 1h, jitter: 5m, paused: false}
//
// backoff is the first wait between two attempts, or {base: 1s, max: 5m}.
//
//	echo: {}
//	script: {}
//	exec: {command: [wc, -w], input: run, output: events, dir: ., env: {LANG: C}, max_output: 64MiB}
//	http: {url: "https://…", cancel_url: "https://…", first_byte_timeout: 30s, idle_timeout: 1m, …}
//	a2a:  {card: "https://…", allow_origins: [], version: 1.0, poll_interval: 1s, on_lost_task: retry, …}
//	pull: {}
//
// input is run (the run as JSON, the default) or text; output is events (one JSON
// event per line, the default) or text. http and a2a have these too:
//
//	headers: {X-Team: words, X-Key: "${WORDS_KEY}"}   # ${NAME} is a variable of the environment
//	bearer_env: WORDS_TOKEN
//	tls: {ca: ca.pem, cert: client.pem, key: client.key, server_name: words.internal}
//	connect_timeout: 5s
//
// Paths, and commands with a slash, are relative to the directory of the file.
//
// The description of the agent may also be under card, with the member names of an A2A 1.0
// AgentCard (documentationUrl, defaultInputModes, …), but each member only once. Under card, name is
// what the card shows; at the top it is the path segment.
package agents

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
)

// File is one agent file that was read.
type File struct {
	Path     string
	Agent    a2a.Agent
	Executor Spec
	Faults   []Fault // of a file that cannot be used; empty in the files of Load
	Warnings []Fault // allowed but probably a mistake
}

// Fault is one error in an agent file, and how to fix it.
type Fault struct {
	Path string
	Line int // 0: the whole file
	Text string
}

func (f Fault) String() string {
	if f.Line == 0 {
		return f.Path + ": " + f.Text
	}
	return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.Text)
}

// Faults is the error of Load: all errors in all files.
type Faults []Fault

func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Load reads agent files. Of a directory it reads every *.yaml, *.yml and *.json that is not
// hidden, in the order of their names. The error is of type Faults.
func Load(paths ...string) ([]File, error) {
	files := Check(paths...)
	var all Faults
	for _, f := range files {
		all = append(all, f.Faults...)
	}
	if len(all) > 0 {
		return nil, all
	}
	return files, nil
}

// Check reads like Load, but returns all files, including those with faults. An unreadable path is
// a file with a fault.
func Check(paths ...string) []File {
	var files []File
	names, defaults := map[string]string{}, ""
	for _, path := range paths {
		found, err := list(path)
		if err != nil {
			files = append(files, File{Path: path, Faults: []Fault{{Path: path, Text: err.Error()}}})
		}
		for _, p := range found {
			files = append(files, check(p, names, &defaults))
		}
	}
	return files
}

// check reads one file. names and defaults say which names and defaults earlier files have, and
// where.
func check(path string, names map[string]string, defaults *string) File {
	data, err := read(path)
	if err != nil {
		return File{Path: path, Faults: []Fault{{Path: path, Text: err.Error()}}}
	}
	d := decoder{path: path}
	file := d.decode(data)
	if name := file.Agent.Name; name != "" {
		if other, ok := names[name]; ok {
			d.fault(d.nameLine, "the name %q is used by %s; choose another", name, other)
		} else {
			names[name] = Fault{Path: path, Line: d.nameLine}.at()
		}
	}
	if file.Agent.Default {
		if *defaults != "" {
			d.fault(d.defaultLine, "%s is the default agent already; keep default: true in one of the two", *defaults)
		} else {
			*defaults = Fault{Path: path, Line: d.defaultLine}.at()
		}
	}
	slices.SortStableFunc(d.faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	slices.SortStableFunc(d.warnings, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	file.Faults, file.Warnings = d.faults, d.warnings
	return file
}

func (f Fault) at() string { return strings.TrimSuffix(f.String(), ": ") }

func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, reason(err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, reason(err)
	}
	var paths []string
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".yaml", ".yml", ".json":
			if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
				paths = append(paths, filepath.Join(path, e.Name()))
			}
		}
	}
	if len(paths) == 0 {
		return nil, errors.New("no agent file in this directory; put one there, named *.yaml, *.yml or *.json")
	}
	return paths, nil
}

// maxFile limits the input of the parsers. Agent files are a page long.
const maxFile = 256 << 10

func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, reason(err)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("the file has %d bytes; an agent file has at most %d", info.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, reason(err)
	}
	return data, nil
}

// reason removes the path from a file system error, because the fault names it already.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Builtin returns the agents that need no file: echo, which is the default, and script. They accept
// any media type, so that conformance kits may send what they like (T-16 in
// docs/reference/protocol.md).
func Builtin() []File {
	files := []File{
		{Path: "built in", Executor: Echo{}, Agent: a2a.Agent{Name: "echo", Default: true, Card: a2a.Card{
			Description: "Answers with one artifact that holds what the message said.",
		}}},
		{Path: "built in", Executor: Script{}, Agent: a2a.Agent{Name: "script", DirectReply: true, Card: a2a.Card{
			Description: `Plays the script in a data part {"script":[…]} of the message; ` +
				`without one it follows the message id prefixes of the A2A conformance kits.`,
		}}},
	}
	for i := range files {
		fill(&files[i])
	}
	return files
}
