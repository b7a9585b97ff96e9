package script

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// Limits of a script.
const (
	maxOps   = 10_000
	maxN     = 100_000
	maxBytes = 1 << 20
	maxMS    = 24 * 60 * 60 * 1000
	maxID    = 256
	maxTimes = 1_000_000
)

// program is the ops that one message asks for.
type program struct {
	ops      []op
	scripted bool // the message has a script, so a plain message continues it
}

type opKind uint8

const (
	opStatus   opKind = iota + 1 // every op that yields a status
	opArtifact                   // chunk and artifact
	opSleep
	opError
	opPanic
	opHang
	opIgnoreCancel
	opEffect
	opReply
)

// op is one step of a program.
type op struct {
	kind  opKind
	state a2a.State
	text  string
	id    string        // of the artifact
	n     int           // chunks
	bytes int           // of a chunk
	parts []a2a.Part    // the chunks, if they are not padding
	wait  time.Duration // how long, or between two chunks
	times int
	url   string
	key   string
}

// piece returns the content of chunk k.
func (o *op) piece(k int) a2a.Part {
	if o.parts != nil {
		return o.parts[k]
	}
	text := o.id + ":" + strconv.Itoa(k) + ":"
	return a2a.Part{Kind: a2a.PartText, Text: text + strings.Repeat("x", max(0, o.bytes-len(text)))}
}

// programOf returns the program of m: its script, or the one that its id names.
func (e *Executor) programOf(m *a2a.Message) (program, error) {
	for _, part := range m.Parts {
		if part.Kind != a2a.PartData {
			continue
		}
		if err := rawjson.Check(part.Data, 64); err != nil {
			return program{}, fmt.Errorf("data part: %w", err)
		}
		if list := rawjson.Get(rawjson.Trim(part.Data), "script"); list != nil {
			ops, err := parse(list)
			return program{ops, true}, err
		}
	}
	return program{ops: e.byPrefix(m.ID)}, nil
}

// Replies reports whether m may be answered with a message instead of a task.
func (e *Executor) Replies(m *a2a.Message) bool {
	p, err := e.programOf(m)
	return err == nil && slices.ContainsFunc(p.ops, func(o op) bool { return o.kind == opReply })
}

// parse reads a script. The error says which op is invalid and why.
func parse(list []byte) ([]op, error) {
	if rawjson.KindOf(list) != rawjson.KindArray {
		return nil, fmt.Errorf("script must be an array of ops")
	}
	var ops []op
	for v := range rawjson.Elements(list) {
		if len(ops) == maxOps {
			return nil, fmt.Errorf("script has more than %d ops", maxOps)
		}
		r := reader{at: fmt.Sprintf("script[%d]", len(ops)), obj: v}
		o := r.op()
		if r.err != nil {
			return nil, r.err
		}
		ops = append(ops, o)
	}
	return ops, nil
}

// reader reads the members of one op and keeps the first error.
type reader struct {
	at  string
	obj []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(r.at+format, args...)
	}
}

var names = []string{
	"status", "chunk", "artifact", "sleep", "input", "auth", "complete", "fail", "reject", "error", "panic", "hang",
	"ignore_cancel", "effect", "reply",
}

var ends = map[string]a2a.State{
	"input": a2a.StateInputRequired, "auth": a2a.StateAuthRequired,
	"complete": a2a.StateCompleted, "fail": a2a.StateFailed, "reject": a2a.StateRejected,
}

func (r *reader) op() op {
	if rawjson.KindOf(r.obj) != rawjson.KindObject {
		r.fail(" must be an object with a member op")
		return op{}
	}
	name := r.text("op", true)
	switch name {
	case "status":
		r.only("state", "text")
		return op{kind: opStatus, state: r.state(), text: r.text("text", false)}
	case "input", "auth", "complete", "fail", "reject":
		r.only("text")
		return op{kind: opStatus, state: ends[name], text: r.text("text", false)}
	case "reply":
		r.only("text")
		return op{kind: opReply, state: a2a.StateCompleted, text: r.text("text", true)}
	case "chunk":
		r.only("id", "n", "bytes", "every_ms")
		return op{
			kind: opArtifact, id: r.id(), n: int(r.number("n", 1, maxN, -1)),
			bytes: int(r.number("bytes", 0, maxBytes, 0)), wait: r.ms("every_ms", 0),
		}
	case "artifact":
		r.only("id", "text")
		part := a2a.Part{Kind: a2a.PartText, Text: r.text("text", false)}
		return op{kind: opArtifact, id: r.id(), n: 1, parts: []a2a.Part{part}}
	case "sleep":
		r.only("ms")
		return op{kind: opSleep, wait: r.ms("ms", -1)}
	case "ignore_cancel":
		r.only("ms")
		return op{kind: opIgnoreCancel, wait: r.ms("ms", -1)}
	case "error":
		r.only("text", "times")
		return op{kind: opError, text: r.text("text", false), times: int(r.number("times", 0, maxTimes, 1))}
	case "panic":
		r.only()
		return op{kind: opPanic}
	case "hang":
		r.only()
		return op{kind: opHang}
	case "effect":
		r.only("url", "key")
		return op{kind: opEffect, url: r.url(), key: r.text("key", false)}
	}
	r.fail(".op: %q is not one of %s", name, strings.Join(names, ", "))
	return op{}
}

// only refuses members that the op does not have: with a misspelled member a script would do something else than its
// author expects.
func (r *reader) only(known ...string) {
	for k := range rawjson.Members(r.obj) {
		if string(k) != "op" && !slices.Contains(known, string(k)) {
			r.fail(": unknown member %q", k)
		}
	}
}

func (r *reader) text(key string, required bool) string {
	v := rawjson.Get(r.obj, key)
	s, ok := rawjson.String(v)
	if !ok && (v != nil || required) {
		r.fail(".%s must be a string", key)
	}
	return s
}

func (r *reader) id() string {
	id := r.text("id", true)
	if id == "" || len(id) > maxID {
		r.fail(".id must be a string of 1 to %d bytes", maxID)
	}
	return id
}

// number reads a whole number. If it is omitted the result is absent, or an error if absent is negative.
func (r *reader) number(key string, least, most, absent int64) int64 {
	v := rawjson.Get(r.obj, key)
	if v == nil && absent >= 0 {
		return absent
	}
	n, ok := rawjson.Int(v)
	if !ok || n < least || n > most {
		r.fail(".%s must be a whole number from %d to %d", key, least, most)
	}
	return n
}

func (r *reader) ms(key string, absent int64) time.Duration {
	return time.Duration(r.number(key, 0, maxMS, absent)) * time.Millisecond
}

func (r *reader) state() a2a.State {
	name := r.text("state", false)
	if name == "" {
		return a2a.StateWorking
	}
	s, ok := a2a.ParseState(name)
	if !ok || s == a2a.StateSubmitted || s == a2a.StateCanceled {
		r.fail(".state: %q is not a state that an agent can report, like working", name)
	}
	return s
}

func (r *reader) url() string {
	s := r.text("url", true)
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		r.fail(".url must be an http or https URL")
	}
	return s
}
