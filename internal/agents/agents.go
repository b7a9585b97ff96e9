// Package agents reads agent files: what an agent is called, how its card describes it,
// and which program does its work. It checks everything that a file alone can show, in
// all files, before it says anything, and it starts nothing.
//
// # Form
//
// YAML, or JSON where the name ends in .json; one agent per file. Anchors, aliases and
// tags are not part of the form.
//
//	name: words                  # path segment under /agents/; required
//	description: Counts words.   # required
//	version: 1.0.0               # default 1.0.0
//	documentation_url, icon_url  # http or https
//	provider: {organization: Example, url: https://example.com}
//	skills:                      # default: one skill made of name and description
//	  - {id: count, name: Count words, description: …, tags: [text], examples: […], input_modes: […], output_modes: […]}
//	input_modes, output_modes    # media types; the default goes by the executor
//	default: true                # the agent that answers at /
//	executor: {echo: {}}         # or {script: {}} or {exec: {…}}; required
//	limits: {concurrency: 8, max_attempts: 5, backoff: 1s, lease_ttl: 30s, deadline: 1h, idle_timeout: 5m}
//	on_busy: queue               # or reject
//	on_lost_lease: retry         # or fail, or input-required
//	dedupe: message_id
//	push: on                     # or off: no webhooks
//
// backoff is the first wait between two attempts, or {base: 1s, max: 5m}.
//
//	exec: {command: [wc, -w], input: run, output: events, dir: ., env: {LANG: C}}
//
// input is run (the run as JSON, the default) or text; output is events (one JSON
// event per line, the default) or text. dir, and so a command with a slash, is taken
// from the directory of the file.
//
// What describes the agent may also stand under card, in the member names of an A2A 1.0
// AgentCard (documentationUrl, defaultInputModes, …), but each thing in one place only.
// There name is what the card shows; at the top it is the path segment.
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

// File is one agent file, read and found good.
type File struct {
	Path     string
	Agent    a2a.Agent
	Executor Spec
	Warnings []Fault // what is allowed but probably not meant
}

// Spec says which executor does the agent's work: Echo, Script or Exec.
type Spec interface{ spec() }

// Echo is the built-in agent that answers with what it was told.
type Echo struct{}

// Script is the built-in agent that plays what its message says.
type Script struct{}

// Exec is a command per run.
type Exec struct {
	Command []string // program and arguments; no shell is involved
	Input   string   // "run" or "text"
	Output  string   // "events" or "text"
	Dir     string   // working directory
	Env     map[string]string
}

func (Echo) spec()   {}
func (Script) spec() {}
func (Exec) spec()   {}

// Fault is one thing that is wrong with an agent file, and what to do about it.
type Fault struct {
	Path string
	Line int // 0: the file as a whole
	Text string
}

func (f Fault) String() string {
	if f.Line == 0 {
		return f.Path + ": " + f.Text
	}
	return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.Text)
}

// Faults is the error of Load: everything that is wrong in all files.
type Faults []Fault

func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Load reads one agent file, or every *.yaml, *.yml and *.json of a directory in the
// order of their names, hidden files left out. The error is of type Faults.
func Load(path string) ([]File, error) {
	paths, err := list(path)
	if err != nil {
		return nil, Faults{{Path: path, Text: err.Error()}}
	}
	var files []File
	var all Faults
	names, defaults := map[string]string{}, ""
	for _, p := range paths {
		d := decoder{path: p}
		data, err := read(p)
		if err != nil {
			all = append(all, Fault{Path: p, Text: err.Error()})
			continue
		}
		file := d.file(data)
		if name := file.Agent.Name; name != "" {
			if other, taken := names[name]; taken {
				d.fault(d.nameLine, "the name %q is taken by %s; choose another", name, other)
			} else {
				names[name] = Fault{Path: p, Line: d.nameLine}.at()
			}
		}
		if file.Agent.Default {
			if defaults != "" {
				d.fault(d.defaultLine, "%s is the default agent already; keep default: true in one of the two", defaults)
			} else {
				defaults = Fault{Path: p, Line: d.defaultLine}.at()
			}
		}
		slices.SortStableFunc(d.faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
		all = append(all, d.faults...)
		files = append(files, file)
	}
	if len(all) > 0 {
		return nil, all
	}
	return files, nil
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

// maxFile bounds what a parser is given; agent files are a page long.
const maxFile = 256 << 10

func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, reason(err)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%d bytes are too many for an agent file, at most %d are read", info.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, reason(err)
	}
	return data, nil
}

// reason leaves out the path of a file system error, which the fault names anyway.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Builtin returns the agents that need no file: echo, which is the default, and script.
// They take any media type, so that a conformance kit may send what it likes (T-16 in docs/protocol.md).
func Builtin() []File {
	files := []File{
		{Path: "built in", Executor: Echo{}, Agent: a2a.Agent{Name: "echo", Default: true, Card: a2a.Card{
			Description: "Answers with one artifact that holds what the message said.",
		}}},
		{Path: "built in", Executor: Script{}, Agent: a2a.Agent{Name: "script", DirectReply: true, Card: a2a.Card{
			Description: `Plays the script in a data part {"script":[…]} of the message; without one it follows the message id prefixes of the A2A conformance kits.`,
		}}},
	}
	for i := range files {
		fill(&files[i])
	}
	return files
}
