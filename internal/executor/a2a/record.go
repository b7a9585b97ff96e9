package a2a

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// record is what the local log has of the upstream's output, in the form that is needed to find what is missing.
type record struct {
	artifacts map[string][]digest // of the parts, in order
	messages  map[string]bool     // ids
}

type digest [16]byte

func newRecord(t *a2a.Task) record {
	r := record{artifacts: map[string][]digest{}, messages: map[string]bool{}}
	for i := range t.Artifacts {
		r.artifacts[t.Artifacts[i].ID] = digests(t.Artifacts[i].Parts)
	}
	for i := range t.History {
		r.messages[t.History[i].ID] = true
	}
	if t.Status.Message != nil {
		r.messages[t.Status.Message.ID] = true
	}
	return r
}

// add notes an update that is relayed.
func (r *record) add(u *a2a.ArtifactUpdate) {
	ds := digests(u.Artifact.Parts)
	if u.Append {
		ds = append(r.artifacts[u.Artifact.ID], ds...)
	}
	r.artifacts[u.Artifact.ID] = ds
}

// missing returns the update that makes the local artifact equal to the upstream's, or nil.
func (r *record) missing(a *a2a.Artifact) *a2a.ArtifactUpdate {
	have, known := r.artifacts[a.ID]
	want := digests(a.Parts)
	u := &a2a.ArtifactUpdate{Artifact: *a}
	switch {
	case len(want) == 0:
		return nil
	case known && len(have) <= len(want) && slices.Equal(have, want[:len(have)]):
		if len(have) == len(want) {
			return nil
		}
		u.Append, u.Artifact.Parts = true, a.Parts[len(have):]
	}
	return u
}

// Limits of one event, below the worker's.
const (
	maxEventParts = 500
	maxEventBytes = 1 << 20
)

// split splits an update into pieces that each fit into an event.
func split(u *a2a.ArtifactUpdate) []*a2a.ArtifactUpdate {
	var pieces []*a2a.ArtifactUpdate
	for parts := u.Artifact.Parts; len(parts) > 0; {
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

func digests(parts []a2a.Part) []digest {
	ds := make([]digest, len(parts))
	h := sha256.New()
	for i := range parts {
		h.Reset()
		p := &parts[i]
		write(h, []byte{byte(p.Kind)})
		for _, s := range []string{p.Text, p.MediaType, p.Filename} {
			write(h, []byte(s))
		}
		canonical(h, p.Data)
		canonical(h, p.Metadata)
		copy(ds[i][:], h.Sum(nil))
	}
	return ds
}

func write(h hash.Hash, b []byte) {
	h.Write(append(strconv.AppendInt(nil, int64(len(b)), 10), ':'))
	h.Write(b)
}

// canonical writes a value in a form that does not depend on the order of members, white space and escapes. A server
// may write these differently each time.
func canonical(h hash.Hash, v []byte) {
	switch rawjson.KindOf(v) {
	case rawjson.KindObject:
		type pair struct{ k, v []byte }
		var pairs []pair
		for k, v := range rawjson.Members(v) {
			pairs = append(pairs, pair{k, v})
		}
		slices.SortFunc(pairs, func(a, b pair) int { return bytes.Compare(a.k, b.k) })
		h.Write([]byte{'{'})
		for _, p := range pairs {
			write(h, p.k)
			canonical(h, p.v)
		}
		h.Write([]byte{'}'})
	case rawjson.KindArray:
		h.Write([]byte{'['})
		for e := range rawjson.Elements(v) {
			canonical(h, e)
		}
		h.Write([]byte{']'})
	case rawjson.KindString:
		s, _ := rawjson.String(v)
		h.Write([]byte{'"'})
		write(h, []byte(s))
	default:
		write(h, v)
	}
}

// named returns a copy of a message with an id. If the message has none, or one that cannot be stored, the id is
// computed from the message, so it is the same each time. It returns nil for a message without content.
func named(m *a2a.Message) *a2a.Message {
	if m == nil || len(m.Parts) == 0 {
		return nil
	}
	c := *m
	c.Role = a2a.RoleAgent
	if c.ID == "" || len(c.ID) > maxID {
		h := sha256.New()
		write(h, []byte(m.ID))
		for _, d := range digests(m.Parts) {
			h.Write(d[:])
		}
		c.ID = "upstream-" + hex.EncodeToString(h.Sum(nil)[:16])
	}
	return &c
}

// maxID is the worker's limit.
const maxID = 256
