package a2a

import (
	"crypto/sha256"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// position is the progress of a task at its upstream, as a checkpoint.
type position struct {
	Task    string // of the upstream; "": none, or none that is known
	Context string // of the upstream; "": not known
	Before  string // the upstream task that ended before this one; "": none
	Nth     int    // how many upstream tasks have ended before this one
	From    int    // index of the client's message that started the upstream task
	Said    int    // how many of the client's messages the upstream has
	Began   int    // how many messages of the agent the client had when the upstream task began
	Heard   int    // and when the newest message was sent to it
	Status  mark   // the last status of the upstream that was relayed
}

// mark identifies a status.
type mark struct {
	State   a2a.State
	Message string
	Time    time.Time
}

func markOf(s *a2a.Status) mark {
	m := mark{State: s.State, Time: s.Time}
	if s.Message != nil {
		m.Message = s.Message.ID
	}
	return m
}

// same compares the members that both marks have: servers do not show the same members of a status everywhere.
func (m mark) same(o mark) bool {
	switch {
	case m.State != o.State:
		return false
	case m.Message != "" && o.Message != "":
		return m.Message == o.Message
	case !m.Time.IsZero() && !o.Time.IsZero():
		return m.Time.Equal(o.Time)
	}
	return m.Message == o.Message
}

func (p *position) encode() a2a.Raw {
	b := rawjson.AppendString([]byte(`{"task":`), p.Task)
	b = rawjson.AppendString(append(b, `,"context":`...), p.Context)
	b = rawjson.AppendString(append(b, `,"before":`...), p.Before)
	b = strconv.AppendInt(append(b, `,"nth":`...), int64(p.Nth), 10)
	b = strconv.AppendInt(append(b, `,"from":`...), int64(p.From), 10)
	b = strconv.AppendInt(append(b, `,"said":`...), int64(p.Said), 10)
	b = strconv.AppendInt(append(b, `,"began":`...), int64(p.Began), 10)
	b = strconv.AppendInt(append(b, `,"heard":`...), int64(p.Heard), 10)
	b = rawjson.AppendString(append(b, `,"state":`...), p.Status.State.String())
	b = rawjson.AppendString(append(b, `,"message":`...), p.Status.Message)
	if !p.Status.Time.IsZero() {
		b = rawjson.AppendString(append(b, `,"time":`...), p.Status.Time.UTC().Format(time.RFC3339Nano))
	}
	return append(b, '}')
}

// decodePosition reads a checkpoint. A checkpoint of another executor, which the agent had before, counts as none.
// messages is how many messages the client has sent.
func decodePosition(v a2a.Raw, messages int) (p position) {
	text := func(key string) string {
		s, _ := rawjson.String(rawjson.Get(v, key))
		return s
	}
	number := func(key string, most int) int {
		n, _ := rawjson.Int(rawjson.Get(v, key))
		return int(min(max(n, 0), int64(most)))
	}
	if rawjson.KindOf(v) != rawjson.KindObject {
		return p
	}
	p = position{Task: text("task"), Context: text("context"), Before: text("before"), Nth: number("nth", 1<<30)}
	p.Said = number("said", messages)
	p.From, p.Began, p.Heard = number("from", p.Said), number("began", 1<<30), number("heard", 1<<30)
	p.Status.State, _ = a2a.ParseState(text("state"))
	p.Status.Message = text("message")
	p.Status.Time, _ = time.Parse(time.RFC3339Nano, text("time"))
	return p
}

// contextOf returns the id of a local context at the upstream. It is the same for all tasks in the context, and
// unique over all owners, although clients may choose the ids of their contexts.
func contextOf(run *executor.Run) string {
	h := sha256.New()
	for _, s := range []string{"a2ad context", run.Tenant, run.Owner, run.Agent, run.Task.ContextID} {
		h.Write(append(strconv.AppendInt(nil, int64(len(s)), 10), ':'))
		h.Write([]byte(s))
	}
	var id a2a.ID
	copy(id[:], h.Sum(nil))
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8
	return id.String()
}
