package attempt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
)

// Limits of one event.
const (
	maxParts = 1000
	maxPart  = 1 << 20
	maxID    = 256

	maxCheckpoint = 1 << 20
)

// ErrReply refuses a message by itself from an agent without direct_reply.
var ErrReply = errors.New("a message by itself: report a status with it, or set direct_reply")

// Prepare checks an event and returns a copy, completed with what an agent may omit. It must be a copy because the
// agent may reuse its event at the same time. bytes is the approximate size. The error says what is wrong with the
// event; then no part of it may be used.
func Prepare(e a2a.Event) (prepared a2a.Event, bytes int, err error) {
	switch e := e.(type) {
	case *a2a.Checkpoint:
		if e != nil {
			if len(e.Body) > maxCheckpoint {
				return nil, 0, fmt.Errorf("a checkpoint is larger than %d bytes", maxCheckpoint)
			}
			return &a2a.Checkpoint{Body: e.Body}, len(e.Body), nil
		}
	case *a2a.StatusUpdate:
		if e != nil {
			return copyStatus(*e)
		}
	case *a2a.ArtifactUpdate:
		if e != nil {
			return copyArtifact(*e)
		}
	case *a2a.Message:
		return nil, 0, ErrReply
	case *a2a.Step:
		if e != nil {
			step := *e
			return &step, len(e.Result) + len(e.Error), nil
		}
	case *a2a.Wait:
		if e != nil {
			return copyWait(*e)
		}
	case *a2a.Call:
		if e != nil {
			return copyCall(*e)
		}
	case *a2a.Usage:
		if e != nil {
			return copyUsage(*e)
		}
	}
	return nil, 0, fmt.Errorf("an event of type %T without content", e)
}

// copyUsage checks a report of usage.
func copyUsage(u a2a.Usage) (a2a.Event, int, error) {
	if err := checkID("usage.model", u.Model); err != nil {
		return nil, 0, err
	}
	for _, n := range []int64{u.Input, u.Output, u.Cached, u.Reasoning, u.Requests} {
		if n < 0 || n > a2a.MaxUsage {
			return nil, 0, fmt.Errorf("usage has a number that is not between 0 and %d", a2a.MaxUsage)
		}
	}
	return &u, u.Size(), nil
}

func copyArtifact(u a2a.ArtifactUpdate) (a2a.Event, int, error) {
	a := &u.Artifact
	if a.ID == "" {
		return nil, 0, errors.New("an artifact without an id")
	}
	if err := checkID("artifactId", a.ID); err != nil {
		return nil, 0, err
	}
	a.Name, a.Description, a.Extensions = CleanText(a.Name), CleanText(a.Description), cleanList(a.Extensions)
	var n int
	var err error
	a.Parts, n, err = copyParts(a.Parts)
	return &u, n + len(u.Metadata) + len(a.Metadata), err
}

func copyStatus(u a2a.StatusUpdate) (a2a.Event, int, error) {
	switch s := u.Status.State; {
	case s == a2a.StateSubmitted || s == a2a.StateCanceled || !s.Valid():
		return nil, 0, fmt.Errorf("an agent cannot set the state %q", s)
	case u.Status.Message == nil:
		return &u, len(u.Metadata), nil
	}
	m, n, err := PrepareReply(u.Status.Message)
	u.Status.Message = m
	return &u, n + len(u.Metadata), err
}

// PrepareReply is Prepare for a message by itself, from an agent with direct_reply.
func PrepareReply(reply *a2a.Message) (_ *a2a.Message, bytes int, err error) {
	if reply == nil {
		return nil, 0, errors.New("a message without content")
	}
	m := *reply
	m.Role = a2a.RoleAgent
	if m.ID == "" {
		m.ID = db.NewUID().String()
	}
	if err := checkID("messageId", m.ID); err != nil {
		return nil, 0, err
	}
	m.Extensions, m.ReferenceTaskIDs = cleanList(m.Extensions), cleanList(m.ReferenceTaskIDs)
	m.Parts, bytes, err = copyParts(m.Parts)
	return &m, bytes + len(m.Metadata), err
}

func cleanList(list []string) []string {
	list = slices.Clone(list)
	for i := range list {
		list[i] = CleanText(list[i])
	}
	return list
}

func checkID(what, id string) error {
	if len(id) > maxID || CleanText(id) != id {
		return fmt.Errorf("%s is longer than %d bytes, not UTF-8 or has a NUL: %.40q", what, maxID, id)
	}
	return nil
}

func copyParts(parts []a2a.Part) (_ []a2a.Part, n int, err error) {
	if len(parts) == 0 || len(parts) > maxParts {
		return nil, 0, fmt.Errorf("%d parts: must be 1 to %d", len(parts), maxParts)
	}
	parts = slices.Clone(parts)
	for i := range parts {
		p := &parts[i]
		if p.Kind < a2a.PartText || p.Kind > a2a.PartData || p.Kind == a2a.PartData && len(p.Data) == 0 {
			return nil, 0, fmt.Errorf("part %d has no content", i)
		}
		p.Text = strings.ToValidUTF8(p.Text, "\uFFFD")
		p.MediaType, p.Filename = CleanText(p.MediaType), CleanText(p.Filename)
		size := partSize(p)
		if size > maxPart {
			return nil, 0, fmt.Errorf("part %d is larger than %d bytes", i, maxPart)
		}
		n += size
	}
	return parts, n, nil
}
