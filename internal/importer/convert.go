package importer

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/wire/answer"
)

const (
	maxName      = 255    // bytes of a tenant and an owner: the widest column of the SDKs
	maxContext   = 256    // bytes of a context id that a client may send
	maxArtifacts = 10_000 // of a task: showing one takes a time that grows with the square of their number
)

// taskName names a task in messages by its id, which can be very long.
func taskName(id string) string {
	if r := []rune(id); len(r) > 64 {
		id = string(r[:64]) + "…"
	}
	return "task " + id
}

func validName(name string) bool {
	return len(name) <= maxName && utf8.ValidString(name) && !strings.Contains(name, "\x00")
}

// convert makes a task of a record. With an error, the item has what is known of the task. left are members that a2ad
// has no place for.
func (r *run) convert(rec *Record) (it item, left []string, err error) {
	it.name = rec.Name
	if rec.Fault != nil {
		return it, nil, rec.Fault
	}
	if err := rawjson.Check(rec.Doc, answer.MaxDepth); err != nil {
		return it, nil, fmt.Errorf("cannot be read: %w", err)
	}
	stored, err := answer.DecodeStored(rec.Doc)
	if stored.ID != "" {
		it.name = taskName(stored.ID)
	}
	it.state = stored.Status.State
	if err != nil {
		return it, nil, err
	}
	if it.state == a2a.StateNone {
		return it, nil, errors.New("task.status.state is unknown: a2ad has no such state")
	}
	if it.Caller, err = r.caller(rec); err != nil {
		return it, nil, err
	}
	if len(stored.ContextID) > maxContext {
		return it, nil, fmt.Errorf("task.contextId is longer than %d bytes", maxContext)
	}
	if n := len(stored.Artifacts); n > maxArtifacts {
		return it, nil, fmt.Errorf("has %d artifacts, more than %d", n, maxArtifacts)
	}
	it.Agent, it.Digest = r.Agent, sha256.Sum256(rec.Doc)
	it.Task = a2a.Task{
		ContextID: stored.ContextID, Status: stored.Status, Artifacts: stored.Artifacts, History: stored.History,
		Metadata: stored.Metadata,
	}
	left = rec.left
	for _, path := range stored.Unknown {
		if p := place(path); !slices.Contains(left, p) {
			left = append(left, p)
		}
	}
	return it, left, r.identify(&it, stored.ID)
}

// identify sets the ids of a task and of its messages, and how a running task goes on.
func (r *run) identify(it *item, id string) error {
	t := &it.Task
	var err error
	if t.ID, err = a2a.ParseID(id); err != nil || t.ID.IsZero() {
		t.ID = replacement(it.Caller, id)
		r.Problem(it.name, fmt.Sprintf("its id is not a UUID: here it is %s", t.ID))
	}
	if t.ContextID == "" {
		t.ContextID = t.ID.String()
	}
	it.settleStatus()
	asks := 0
	for i := range t.History {
		m := &t.History[i]
		if m.ID == "" {
			m.ID = fmt.Sprintf("%s-%d", t.ID, i+1)
		}
		if m.Role == a2a.RoleUser {
			asks++
		}
	}
	if m := t.Status.Message; m != nil && m.ID == "" {
		m.ID = t.ID.String() + "-status"
	}
	switch {
	case it.state.EndsTurn():
	case r.Running == RunningFail:
		it.Fail = &a2a.Message{
			ID: db.NewUID().String(), Role: a2a.RoleAgent,
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: failText}},
		}
	case r.Running == RunningSubmit && asks == 0:
		return errors.New("cannot be submitted: its history has no message of the client")
	}
	return nil
}

// settleStatus makes the task show the message of its status once. a2ad adds it to the history with the next status.
// a2a-js adds it at once, then the answer of the client, and keeps the status until the agent's first event. So if the
// answer is there, the task is working.
func (it *item) settleStatus() {
	t := &it.Task
	m := t.Status.Message
	if m == nil || m.ID == "" {
		return
	}
	at := slices.IndexFunc(t.History, func(h a2a.Message) bool { return h.ID == m.ID && h.Role == a2a.RoleAgent })
	switch {
	case at < 0:
	case at == len(t.History)-1:
		t.History = t.History[:at]
	default:
		t.Status.Message = nil
		if t.History[len(t.History)-1].Role == a2a.RoleUser && it.state.EndsTurn() && !it.state.Terminal() {
			it.state, t.Status.State = a2a.StateWorking, a2a.StateWorking
		}
	}
}

const failText = "The server that worked on this task was replaced before the task ended."

// replacement makes a task id of one that is not a UUID. The same id of the same owner always has the same one, so
// that an import can be repeated. It is a UUID of version 8.
func replacement(owner db.Caller, id string) (out a2a.ID) {
	sum := sha256.Sum256([]byte("a2ad import\x00" + owner.Tenant + "\x00" + owner.Owner + "\x00" + id))
	copy(out[:], sum[:])
	out[6], out[8] = out[6]&0x0f|0x80, out[8]&0x3f|0x80
	return out
}
