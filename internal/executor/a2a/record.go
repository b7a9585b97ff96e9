package a2a

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
)

// record is what the local log has of the upstream's output, in the form that is needed to find what is missing.
type record struct {
	artifacts map[string]*content
	messages  []*sent // of the agent, in order
	byID      map[string]*content
}

// sent is a message of the agent.
type sent struct {
	*content
	id string
}

func newRecord(t *a2a.Task) record {
	r := record{artifacts: map[string]*content{}, byID: map[string]*content{}}
	for i := range t.Artifacts {
		r.artifacts[t.Artifacts[i].ID] = contentOf(t.Artifacts[i].Parts, false)
	}
	for i := range t.History {
		if t.History[i].Role == a2a.RoleAgent {
			r.addMessage(&t.History[i])
		}
	}
	if t.Status.Message != nil {
		r.addMessage(t.Status.Message)
	}
	return r
}

// add notes an update that is relayed.
func (r *record) add(u *a2a.ArtifactUpdate) {
	c := r.artifacts[u.Artifact.ID]
	switch {
	case c == nil:
		c = &content{}
	case !u.Append:
		c = &content{older: c.older}
	}
	r.artifacts[u.Artifact.ID] = c
	c.add(u.Artifact.Parts)
}

// addMessage notes a message that is relayed. Several may have the same id, because some servers send a message in
// pieces.
func (r *record) addMessage(m *a2a.Message) {
	one := sent{content: contentOf(m.Parts, true), id: m.ID}
	r.messages = append(r.messages, &one)
	all := r.byID[m.ID]
	if all == nil {
		all = &content{bare: true}
		r.byID[m.ID] = all
	}
	all.add(m.Parts)
	all.older = append(all.older, one.sum())
}

// told reports whether the client has this message, or has just had one of the same content.
func (r *record) told(m *a2a.Message) bool {
	want := contentOf(m.Parts, true)
	if have := r.byID[m.ID]; have != nil {
		return have.has(want)
	}
	last := len(r.messages) - 1
	return last >= 0 && r.messages[last].sum() == want.sum()
}

// replacing says which artifacts of a Task replace local ones that differ.
type replacing uint8

const (
	replaceNone  replacing = iota // the Task is older than the local log
	replaceNewer                  // all but a part of the local one, or what it once was: no event was missed
	replaceAll                    // events were missed
)

// missing returns the update that makes the local artifact equal to the upstream's, or nil.
func (r *record) missing(a *a2a.Artifact, read *reading, how replacing) *a2a.ArtifactUpdate {
	u := &a2a.ArtifactUpdate{Artifact: *a}
	want, have := contentOf(a.Parts, false), r.artifacts[a.ID]
	switch {
	case have == nil && (len(want.spans) == 0 || read.renamed(want)):
		return nil
	case have == nil:
		return u
	case len(want.spans) == 0:
		if len(a.Parts) == 0 || len(have.spans) == 0 || how != replaceAll {
			return nil
		}
		u.Artifact.Parts = []a2a.Part{{Kind: a2a.PartText}}
		return u
	}
	rest, ok := have.rest(a.Parts)
	switch {
	case ok && len(rest) == 0, !ok && how == replaceNone, how == replaceNewer && have.has(want):
		return nil
	case ok:
		u.Append, u.Artifact.Parts = true, rest
	}
	return u
}

// lacking returns the parts of an upstream's message that the client lacks, and the id that they have here.
func (r *record) lacking(m *a2a.Message, read *reading, at age) (parts []a2a.Part, id string) {
	have := r.byID[m.ID]
	if have == nil {
		return read.retold(m, at)
	}
	if have.has(contentOf(m.Parts, true)) {
		return nil, ""
	}
	if rest, ok := have.rest(m.Parts); ok {
		return rest, m.ID
	}
	return m.Parts, m.ID
}

// age is where a message stands in the history.
type age uint8

const (
	ageUnknown   age = iota
	beforeNewest     // message of the client
	afterNewest
)

// reading is one reading of the upstream's Task. Some servers make new ids with each answer, so it also has what the
// client has under ids that the Task does not show, until that is found in the Task.
type reading struct {
	older, newer []*sent // than the client's newest message
	held         []*sent // a message that the client is about to get
	artifacts    map[digest]int
	budget       int // of comparisons
}

const maxComparisons = 100_000

// shown are the ids in a Task: those of messages, and the local ones of artifacts, which end in tail.
type shown struct {
	messages, artifacts map[string]bool
	tail                string
}

// read begins a reading. held is a message that the client is about to get, or nil.
func (r *record) read(task shown, p *position, held *a2a.Message) *reading {
	read := &reading{artifacts: map[digest]int{}, budget: maxComparisons}
	for i, one := range r.messages {
		switch {
		case i < p.Began || task.messages[one.id]:
		case i < p.Heard:
			read.older = append(read.older, one)
		default:
			read.newer = append(read.newer, one)
		}
	}
	if held != nil {
		read.held = []*sent{{content: contentOf(held.Parts, true), id: held.ID}}
	}
	for id, c := range r.artifacts {
		if !task.artifacts[id] && strings.HasSuffix(id, task.tail) {
			read.artifacts[c.sum()]++
		}
	}
	return read
}

// renamed finds an artifact that the client has under another id.
func (r *reading) renamed(want *content) bool {
	sum := want.sum()
	r.artifacts[sum]--
	return r.artifacts[sum] >= 0
}

// retold finds a message that the client has under another id, or as several messages with other ids. It returns what
// the client lacks, and its id here.
func (r *reading) retold(m *a2a.Message, at age) (rest []a2a.Part, id string) {
	if at != afterNewest && r.find(&r.older, m.Parts) ||
		at != beforeNewest && (r.find(&r.newer, m.Parts) || r.find(&r.held, m.Parts)) {
		return nil, ""
	}
	if at == beforeNewest || len(r.newer) == 0 {
		return m.Parts, m.ID
	}
	// The messages so far may be the beginning of this one.
	rest = m.Parts
	for _, one := range r.newer {
		var ok bool
		if rest, ok = one.rest(rest); !ok {
			return m.Parts, m.ID
		}
	}
	return rest, r.newer[0].id
}

// find removes the first messages of the list that together have these parts.
func (r *reading) find(list *[]*sent, parts []a2a.Part) bool {
	for i := range *list {
		rest := parts
		for n := i; n < len(*list) && r.budget > 0; n++ {
			r.budget--
			next, ok := (*list)[n].rest(rest)
			if !ok {
				break
			}
			if rest = next; len(rest) == 0 {
				*list = slices.Delete(*list, i, n+1)
				return true
			}
		}
	}
	return false
}

// split splits an update into pieces that each fit into an event.
func split(u *a2a.ArtifactUpdate) []*a2a.ArtifactUpdate {
	var pieces []*a2a.ArtifactUpdate
	for parts := fit(u.Artifact.Parts); len(parts) > 0; {
		n, size := 0, 0
		for n < len(parts) && n < maxEventParts {
			size += len(parts[n].Text) + len(parts[n].Data) + len(parts[n].Metadata)
			if n > 0 && size > maxEventBytes {
				break
			}
			n++
		}
		piece := *u
		piece.Artifact.Parts = parts[:n]
		parts = parts[n:]
		piece.Append = u.Append || len(pieces) > 0
		piece.LastChunk = u.LastChunk && len(parts) == 0
		pieces = append(pieces, &piece)
	}
	return pieces
}

// named returns a copy of a message with an id. If the message has none, or one that cannot be stored, the id is
// computed from the message, so it is the same each time. It returns nil for a message without content.
func named(m *a2a.Message) *a2a.Message {
	if m == nil || len(m.Parts) == 0 {
		return nil
	}
	c := *m
	c.Role, c.TaskID, c.ContextID = a2a.RoleAgent, "", "" // the ids are the upstream's
	c.Parts = fit(m.Parts)
	if c.ID == "" || len(c.ID) > maxID {
		h := sha256.New()
		write(h, []byte(m.ID))
		sum := contentOf(m.Parts, true).sum()
		h.Write(sum[:])
		c.ID = "upstream-" + hex.EncodeToString(h.Sum(nil)[:16])
	}
	return &c
}

// maxID is the worker's limit.
const maxID = 256
