package agents

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// decoder reads one file. It continues after a fault, so that it finds all of them.
type decoder struct {
	path        string
	faults      []Fault
	warnings    []Fault
	nameLine    int
	defaultLine int

	extendedLine int

	scheduleLines []int                             // of the schedules
	inputs        map[string]a2a.Schema             // of skills, by id
	note          func(what string, fields []field) // called for each mapping that is read; for tests
}

func (d *decoder) fault(line int, format string, args ...any) {
	d.faults = append(d.faults, Fault{Path: d.path, Line: line, Text: fmt.Sprintf(format, args...)})
}

func (d *decoder) warn(line int, format string, args ...any) {
	d.warnings = append(d.warnings, Fault{Path: d.path, Line: line, Text: fmt.Sprintf(format, args...)})
}

// field is one key that a mapping may have. alias is its name in a 1.0 card, if that differs.
type field struct {
	name  string
	alias string
	read  func(node)
}

// mapping reads a mapping by its fields and refuses all other keys. gone explains why keys that
// people may expect are refused.
func (d *decoder) mapping(n node, what string, fields []field, gone map[string]string) (lines map[string]int) {
	lines = map[string]int{}
	if d.note != nil {
		d.note(what, fields)
	}
	if n.kind != kindMap {
		d.fault(n.line, "%s must be a mapping of keys to values, not %s", what, n.kind)
		return lines
	}
	for _, m := range n.members {
		i := slices.IndexFunc(fields, func(f field) bool {
			return m.key == f.name || m.key == f.alias && f.alias != ""
		})
		switch {
		case i < 0 && gone[m.key] != "":
			d.fault(m.line, "%s", gone[m.key])
		case i < 0:
			d.unknown(m, what, fields)
		case lines[fields[i].name] != 0:
			d.fault(m.line, "%s is on line %d already; keep one", m.key, lines[fields[i].name])
		default:
			lines[fields[i].name] = m.line
			fields[i].read(m.value)
		}
	}
	return lines
}

func (d *decoder) unknown(m member, what string, fields []field) {
	var names, aliases []string
	for _, f := range fields {
		names = append(names, f.name)
		if f.alias != "" {
			aliases = append(aliases, f.alias)
		}
	}
	if guess := nearest(m.key, slices.Concat(names, aliases)); guess != "" {
		d.fault(m.line, "%s has no key %q; did you mean %s?", what, m.key, guess)
		return
	}
	if len(names) == 0 {
		d.fault(m.line, "%s has no keys; write %s: {}", what, what)
		return
	}
	d.fault(m.line, "%s has no key %q; its keys are %s", what, m.key, strings.Join(names, ", "))
}

func (d *decoder) decode(data []byte) File {
	f := File{Path: d.path}
	parse := parseYAML
	if filepath.Ext(d.path) == ".json" {
		parse = parseJSON
	}
	root, err := parse(data)
	if err != nil {
		line := 0
		var le *lineError
		if errors.As(err, &le) {
			line = le.line
		}
		d.fault(line, "%s", err)
		return f
	}
	if root.kind != kindMap {
		d.fault(root.line, "an agent file must be a mapping of keys to values, not %s", root.kind)
		return f
	}
	d.root(root, &f)
	if len(d.faults) == 0 {
		fill(&f)
		if x := f.Agent.Extended; x != nil {
			f.Agent.Extended = d.extend(f.Agent.Name, &f.Agent.Card, x, d.extendedLine)
		}
		d.checkMessages(&f.Agent)
	}
	return f
}

func (d *decoder) root(root node, f *File) {
	a := &f.Agent
	var title string
	var card node
	describe := d.card(&a.Card)
	fields := append([]field{
		{name: "name", read: d.name(&a.Name)},
		{name: "$schema", read: d.text("$schema", new(string))}, // for editors
		{name: "default", read: d.truth("default", &a.Default)},
		{name: "card", read: func(n node) { card = n }},
		{name: "extended_card", read: func(n node) { a.Extended = &a2a.Card{}; d.extended(n, a.Extended) }},
		{name: "executor", read: func(n node) { f.Executor = d.executor(n) }},
		{name: "limits", read: func(n node) { d.limits(n, &a.Limits) }},
		{name: "on_busy", read: d.choice("on_busy", []string{"queue", "reject"}, func(i int) {
			a.OnBusy = a2a.OnBusy(i)
		})},
		{name: "on_lost_lease",
			read: d.choice("on_lost_lease", []string{"retry", "fail", "input-required"}, func(i int) {
				a.OnLostLease = a2a.OnLostLease(i)
			})},
		{name: "dedupe", read: d.choice("dedupe", []string{"message_id"}, func(int) { a.DedupeByID = true })},
		{name: "direct_reply", read: d.truth("direct_reply", &a.DirectReply)},
		{name: "retention", read: func(n node) { d.retention(n, &a.Retention) }},
		{name: "schedules", read: func(n node) { d.schedules(n, &a.Schedules) }},
		{name: "push", read: d.choice("push", []string{"on", "off"}, func(i int) { a.PushOff = i == 1 })},
	}, plain(describe)...)
	lines := d.mapping(root, "an agent file", fields, nil)
	d.nameLine, d.defaultLine, d.extendedLine = lines["name"], lines["default"], lines["extended_card"]
	if lines["card"] != 0 {
		inner := append([]field{{name: "name", read: d.text("card.name", &title)}}, describe...)
		for _, m := range d.twice(card, inner, lines) {
			d.fault(m.line, "card.%s is given at the top of the file too; keep one", m.key)
		}
		for name, line := range d.mapping(card, "card", inner, byServer) {
			if name != "name" {
				lines[name] = line
			}
		}
	}
	a.Card.Name, a.Inputs = title, d.inputs
	for _, key := range []string{"name", "description", "executor"} {
		if lines[key] == 0 {
			d.fault(0, "%s is missing; add a line like %s", key, samples[key])
		}
	}
	if v := a.Card.Version; v != "" && !plainVersion.MatchString(v) {
		d.warn(lines["version"], "version %q does not have the form 1.2.3, which some clients require", v)
	}
}

var samples = map[string]string{
	"name":        "name: words",
	"description": "description: Counts the words of a text.",
	"executor":    `executor: {exec: {command: ["wc", "-w"], input: text, output: text}}`,
}

var plainVersion = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

// twice returns the members of card that are also at the top of the file.
func (d *decoder) twice(card node, fields []field, top map[string]int) []member {
	var both []member
	for _, m := range card.members {
		for _, f := range fields {
			if (m.key == f.name || m.key == f.alias) && f.name != "name" && top[f.name] != 0 {
				both = append(both, m)
			}
		}
	}
	return both
}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// reserved are paths of the server that an agent with the same name would hide.
var reserved = []string{"v1", "tasks", "agents", "worker", "extendedAgentCard"}

func (d *decoder) name(dst *string) func(node) {
	return func(n node) {
		var name string
		if d.text("name", &name)(n); name == "" {
			return
		}
		switch {
		case ReservedName(name):
			d.fault(n.line, "the name %q is used by the server itself; choose another", name)
		case !ValidName(name):
			d.fault(n.line,
				"the name %q is part of a URL; "+
					"use at most 64 letters, digits, - and _, and start with a letter or digit", name)
		default:
			*dst = name
		}
	}
}

// retention reads how long ended tasks are kept: one duration for every end, or one for each.
func (d *decoder) retention(n node, r *a2a.Retention) {
	if n.kind != kindMap {
		var all time.Duration
		d.keep("retention", &all)(n)
		*r = a2a.Retention{Completed: all, Failed: all, Canceled: all, Rejected: all}
		return
	}
	d.mapping(n, "retention", []field{
		{name: "completed", read: d.keep("retention.completed", &r.Completed)},
		{name: "failed", read: d.keep("retention.failed", &r.Failed)},
		{name: "canceled", read: d.keep("retention.canceled", &r.Canceled)},
		{name: "rejected", read: d.keep("retention.rejected", &r.Rejected)},
		{name: "log", read: d.keep("retention.log", &r.Log)},
	}, nil)
}

// keep reads a duration, or never, which becomes negative.
func (d *decoder) keep(what string, dst *time.Duration) func(node) {
	return func(n node) {
		if n.kind == kindString && n.text == "never" {
			*dst = -1
			return
		}
		d.duration(what, dst)(n)
	}
}

func (d *decoder) limits(n node, l *a2a.Limits) {
	d.mapping(n, "limits", []field{
		{name: "concurrency", read: d.count("concurrency", 10_000, &l.Concurrency)},
		{name: "max_attempts", read: d.count("max_attempts", 1000, &l.MaxAttempts)},
		{name: "backoff", read: func(n node) { d.backoff(n, l) }},
		{name: "lease_ttl", read: d.duration("lease_ttl", &l.LeaseTTL)},
		{name: "deadline", read: d.duration("deadline", &l.Deadline)},
		{name: "idle_timeout", read: d.duration("idle_timeout", &l.IdleTimeout)},
		{name: "unreachable", read: d.duration("unreachable", &l.Unreachable)},
		{name: "on_exhausted", read: d.choice("on_exhausted", []string{"fail", "park"}, func(i int) {
			l.OnExhausted = a2a.ExhaustedFail + a2a.OnExhausted(i)
		})},
		{name: "park_for", read: d.keep("park_for", &l.ParkFor)},
	}, nil)
}

func (d *decoder) backoff(n node, l *a2a.Limits) {
	if n.kind != kindMap {
		d.duration("backoff", &l.BackoffBase)(n)
		return
	}
	d.mapping(n, "backoff", []field{
		{name: "base", read: d.duration("backoff.base", &l.BackoffBase)},
		{name: "max", read: d.duration("backoff.max", &l.BackoffMax)},
	}, nil)
	if l.BackoffMax != 0 && l.BackoffMax < l.BackoffBase {
		d.fault(n.line, "backoff.max is less than backoff.base; make it at least %s", l.BackoffBase)
	}
}
