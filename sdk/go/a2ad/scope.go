package a2ad

import (
	"context"
	"errors"
	"strings"
)

type (
	stepKey   struct{}
	branchKey struct{}
)

// branch is a branch of Gather. Its context has it as a value.
type branch struct {
	session *session
	prefix  string // of keys
	group   *group
	number  int
}

// branchOf returns the branch of this run that makes the call; nil outside of Gather.
func branchOf(ctx context.Context, s *session) *branch {
	if b, _ := ctx.Value(branchKey{}).(*branch); b != nil && b.session == s {
		return b
	}
	return nil
}

func prefixOf(ctx context.Context, s *session) string {
	if b := branchOf(ctx, s); b != nil {
		return b.prefix
	}
	return ""
}

// stepOf returns the running step of this run that makes the call, or nil.
func stepOf(ctx context.Context, s *session) *try {
	if t, _ := ctx.Value(stepKey{}).(*try); t != nil && t.session == s {
		return t
	}
	return nil
}

// do makes a call of the agent. It refuses one in the wrong place, and remembers a mistake.
func (s *session) do(ctx context.Context, call func() error) error {
	where := callers()
	err := s.inPlace(ctx, where, call)
	if err == nil || !isMistake(err) {
		return err
	}
	var wrong *UsageError
	if errors.As(err, &wrong) && wrong.Line == "" { // the server has refused it
		located := *wrong
		located.Line = where.line()
		err = &located
	}
	if running := stepOf(ctx, s); running == nil || !running.mistaken(err) {
		s.refuse(ctx, err)
	}
	return err
}

func (s *session) inPlace(ctx context.Context, where *place, call func() error) error {
	if running := stepOf(ctx, s); running != nil {
		return call()
	}
	if b := branchOf(ctx, s); b != nil {
		if err := b.group.check(b.number); err != nil {
			return err
		}
	}
	prefix := prefixOf(ctx, s)
	s.mu.Lock()
	switch other := s.calling[prefix]; {
	case s.mistake != nil:
		defer s.mu.Unlock()
		return s.mistake
	case s.final:
		defer s.mu.Unlock()
		return s.overLocked()
	case other != nil:
		defer s.mu.Unlock()
		return errAtOnce(other.line())
	}
	s.calling[prefix] = where
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calling, prefix)
		if len(s.calling) == 0 && s.idle != nil {
			close(s.idle)
		}
	}()
	return call()
}

// errAtOnce refuses a call while another one of the same branch is in progress. The order of the two may change in the
// next attempt, and with it their keys.
func errAtOnce(other string) error {
	if other == "" {
		other = "another place"
	}
	return misuse("the call at %s is still in progress: make one call after the other, or use Gather. Pass the "+
		"context that the function of a step or of a branch gets to the calls in it", other)
}

// callingLine returns the line of the call in progress in a branch.
func (s *session) callingLine(ctx context.Context) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.calling[prefixOf(ctx, s)]; p != nil {
		return p.line()
	}
	return ""
}

func outsideSteps(ctx context.Context, s *session, what string) error {
	if running := stepOf(ctx, s); running != nil {
		return misuse("%s inside the step %q: a step can only write and report usage", what, running.name)
	}
	return nil
}

// outsideGather refuses output for which the order of branches matters: it may differ in the next attempt.
func outsideGather(ctx context.Context, s *session, what string) error {
	if branchOf(ctx, s) != nil {
		return misuse("%s inside Gather: it can contain steps, calls, statuses and usage. Write text in a step, and "+
			"anything else after Gather", what)
	}
	return nil
}

// stream notes that a step of this branch writes an artifact. It refuses one that another branch writes: if a step
// begins again, the server restores its artifact, and removes all later text.
func (s *session) stream(ctx context.Context, artifact string) error {
	here := prefixOf(ctx, s)
	s.mu.Lock()
	defer s.mu.Unlock()
	other := s.streams[artifact]
	if !strings.HasPrefix(here, other) && !strings.HasPrefix(other, here) {
		return misuse("another branch of Gather writes the artifact %q: give each its own", artifact)
	}
	s.streams[artifact] = here
	return nil
}

// endGather lets this branch write the artifacts that the branches of a Gather wrote.
func (s *session) endGather(ctx context.Context, prefix string) {
	here := prefixOf(ctx, s)
	s.mu.Lock()
	defer s.mu.Unlock()
	for artifact, writer := range s.streams {
		if strings.HasPrefix(writer, prefix+".") {
			s.streams[artifact] = here
		}
	}
}
