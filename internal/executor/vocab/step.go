package vocab

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

func (r *reader) step(v []byte) a2a.Event {
	s := &a2a.Step{Attempts: 1}
	r.members(v, "step", func(key, path string, v []byte) bool {
		switch key {
		case "key":
			s.Key = r.id(v, path)
		case "name":
			s.Name = r.id(v, path)
		case "input":
			digest := sha256.Sum256(v)
			s.Input = digest[:]
		case "result":
			s.Result = v
		case "error":
			s.Error = v
		case "attempts":
			s.Attempts = r.count(v, path)
		case "nextAt":
			s.NextAt = r.time(v, path)
		case "startedAt":
			s.StartedAt = r.time(v, path)
		case "endedAt":
			s.EndedAt = r.time(v, path)
		case "artifact":
			s.Artifact = r.id(v, path)
		default:
			return false
		}
		return true
	})
	switch {
	case s.Key == "":
		r.fail("step.key", "is missing")
	case s.Result != nil && s.Error != nil:
		r.fail("step", "must have a result or an error, not both")
	case s.Artifact != "" && !s.Begins():
		r.fail("step.artifact", "is only for a step that begins, without a result or an error")
	case s.Error == nil && !s.NextAt.IsZero():
		r.fail("step.nextAt", "is only for a step that failed")
	case s.Artifact == "" && s.Result == nil && s.Error == nil:
		s.Result = a2a.Raw("null")
	}
	return s
}

func (r *reader) wait(v []byte) a2a.Event {
	w := &a2a.Wait{}
	r.members(v, "wait", func(key, path string, v []byte) bool {
		switch key {
		case "key":
			w.Key = r.id(v, path)
		case "input":
			digest := sha256.Sum256(v)
			w.Input = digest[:]
		case "until":
			w.Until = r.time(v, path)
		case "for":
			w.For = r.duration(v, path)
		case "message":
			w.Message = r.truth(v, path)
		case "signal":
			w.Signal = r.id(v, path)
		case "expects":
			w.Expects = r.object(v, path)
		case "status":
			w.Status = &a2a.Status{}
			r.status(v, path, w.Status)
		case "tasks":
			w.Tasks = r.texts(v, path)
		case "mode":
			w.Any = r.oneOf(v, path, "all", "any") == "any"
		default:
			return false
		}
		return true
	})
	return w
}

func (r *reader) call(v []byte) a2a.Event {
	c := &a2a.Call{}
	sum := sha256.New()
	r.members(v, "call", func(key, path string, v []byte) bool {
		switch key {
		case "key":
			c.Key = r.id(v, path)
		case "agent":
			c.Agent = r.id(v, path)
		case "message":
			sum.Write(v)
			c.Message = r.calledMessage(v, path)
		case "onParentEnd":
			c.Abandon = r.oneOf(v, path, "cancel", "abandon") == "abandon"
		default:
			return false
		}
		return true
	})
	switch {
	case c.Key == "":
		r.fail("call.key", "is missing")
	case c.Agent == "":
		r.fail("call.agent", "is missing")
	case c.Message.Parts == nil:
		r.fail("call.message.parts", "must have at least one part")
	}
	c.Input = sum.Sum(nil)
	return c
}

// calledMessage reads the message that a run sends to another agent. The server sets its ids and its role.
func (r *reader) calledMessage(v []byte, path string) a2a.Message {
	m := a2a.Message{Role: a2a.RoleUser}
	r.members(v, path, func(key, path string, v []byte) bool {
		switch key {
		case "parts":
			m.Parts = r.parts(v, path)
		case "metadata":
			m.Metadata = r.object(v, path)
		case "extensions":
			m.Extensions = r.texts(v, path)
		case "role":
			if role := r.text(v, path); role != "ROLE_USER" && role != "user" {
				r.fail(path, "must be ROLE_USER")
			}
		default:
			return false
		}
		return true
	})
	return m
}

// oneOf reads a string that must be one of several.
func (r *reader) oneOf(v []byte, path string, names ...string) string {
	s := r.text(v, path)
	if !slices.Contains(names, s) {
		r.fail(path, "must be one of %s", strings.Join(names, ", "))
	}
	return s
}

// count reads a positive integer.
func (r *reader) count(v []byte, path string) int {
	n, err := strconv.ParseInt(string(v), 10, 32)
	if err != nil || n < 1 {
		r.fail(path, "must be a positive integer")
	}
	return int(n)
}

// Times that PostgreSQL and every client can show.
var firstTime, lastTime = time.Unix(0, 0), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

func (r *reader) time(v []byte, path string) time.Time {
	t, err := time.Parse(time.RFC3339, r.text(v, path))
	if err != nil || t.Before(firstTime) || t.After(lastTime) {
		r.fail(path, "must be a time such as 2026-12-24T08:00:00Z")
	}
	return t.UTC()
}

func (r *reader) duration(v []byte, path string) time.Duration {
	d, err := time.ParseDuration(r.text(v, path))
	if err != nil || d < 0 {
		r.fail(path, "must be a duration such as 90s or 24h")
	}
	return d
}

// steps writes the recorded steps of a run, and how many there are.
func (w *writer) steps(steps []a2a.StepRecord, count int) {
	if count == 0 {
		return
	}
	w.key("stepCount")
	w.b = strconv.AppendInt(w.b, int64(count), 10)
	w.key("steps")
	w.b = AppendSteps(w.b, steps)
}

// AppendSteps appends recorded steps as a JSON array, in the form in which a run has them.
func AppendSteps(b []byte, steps []a2a.StepRecord) []byte {
	w := writer{b}
	w.list(len(steps), func(i int) { w.stepRecord(&steps[i]) })
	return w.b
}

func (w *writer) stepRecord(s *a2a.StepRecord) {
	w.key("seq")
	w.b = strconv.AppendInt(w.b, int64(s.Seq), 10)
	w.str("kind", s.Kind.String())
	w.str("key", s.Key)
	if s.Kind == a2a.StepCall {
		w.str("agent", s.Name)
		w.str("taskId", s.Child.String())
	} else {
		w.optional("name", s.Name)
	}
	w.optional("inputSha", hex.EncodeToString(s.Input))
	w.optional("artifact", s.Artifact)
	w.raw("result", s.Result)
	w.raw("error", s.Error)
	if s.Kind == a2a.StepWork {
		w.key("attempts")
		w.b = strconv.AppendInt(w.b, int64(s.Attempts), 10)
	}
	for _, t := range []struct {
		key string
		at  time.Time
	}{{"nextAt", s.NextAt}, {"startedAt", s.StartedAt}, {"endedAt", s.EndedAt}} {
		if !t.at.IsZero() {
			w.time(t.key, t.at)
		}
	}
}
