// Package attempt has the rules that all attempts at a task share. They say which events may be stored, how
// much a task may grow, and what happens to the task when an attempt fails.
//
// The worker of this process and the API of remote workers use it, so that the same rules apply to both. It knows
// leases and events. It knows neither executors nor HTTP, and it starts no goroutines.
package attempt

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Bounds limits the growth of a task. Zero means no limit.
type Bounds struct {
	Bytes     int64
	Events    int64
	Artifacts int
	Steps     int
	Depth     int // of calls
	Children  int // calls of one task
	// MayCall returns why an agent cannot be called with a message. nil: none can.
	MayCall func(agent string, m *a2a.Message) error
}

// Admit refuses events that would make the task too large. The limit of events does not apply to the event that ends a
// turn: without it a task at its limit could not end.
func (b Bounds) Admit(l *tasks.Lease, events, bytes int, ends bool) error {
	if b.Events > 0 && l.LastSeq+int64(events) > b.Events && !ends {
		return fmt.Errorf("the task would have more than %d events", b.Events)
	}
	if b.Bytes > 0 && l.Bytes+l.StepBytes+int64(bytes) > b.Bytes {
		return fmt.Errorf("the task would be larger than %d bytes", b.Bytes)
	}
	return nil
}

// TooMany refuses more artifacts than a task may have.
func (b Bounds) TooMany(artifacts int) error {
	if b.Artifacts > 0 && artifacts > b.Artifacts {
		return fmt.Errorf("the task would have more than %d artifacts", b.Artifacts)
	}
	return nil
}

// Failure is why an attempt did not end its turn.
type Failure struct {
	Text      string        // for the record of attempts and the client
	Final     bool          // another attempt would not help
	Exhausted bool          // no attempt is left, whatever its number is
	Delay     time.Duration // before the next attempt; 0: by the agent's backoff
}

// Ended is what happened to the task.
type Ended struct {
	Failed bool          // the task has failed
	Parked bool          // the task waits for an operator
	Again  time.Duration // otherwise: when it can be claimed again
}

// Fail records a failed attempt. The task is released for another attempt if one is left and would help. If none is
// left, it is parked if the limits say so. Otherwise it fails. If the lease is lost, Fail changes nothing and returns
// db.ErrLeaseLost.
func Fail(ctx context.Context, s *tasks.Store, l *tasks.Lease, limits a2a.Limits, f Failure) (Ended, error) {
	f.Text = Text(f.Text)
	exhausted := f.Exhausted || l.Attempt >= limits.MaxAttempts
	if !f.Final && !exhausted {
		if f.Delay == 0 {
			f.Delay = backoff.Policy{Base: limits.BackoffBase, Max: limits.BackoffMax}.Delay(l.Attempt, nil)
		}
		return Ended{Again: f.Delay}, s.Retry(ctx, l, f.Text, f.Delay)
	}
	text := f.Text
	if !f.Final && !f.Exhausted {
		text = fmt.Sprintf("attempt %d of %d: %s", l.Attempt, limits.MaxAttempts, text)
	}
	if !f.Final && limits.OnExhausted == a2a.ExhaustedPark {
		return Ended{Parked: true}, s.Park(ctx, l, text, limits.ParkFor)
	}
	status := &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateFailed, Message: &a2a.Message{
		ID: db.NewUID().String(), Role: a2a.RoleAgent, Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}},
	}}}
	_, err := s.Append(ctx, l, tasks.Batch{Events: []a2a.Event{status}, Error: text})
	return Ended{Failed: true}, err
}

const maxText = 1 << 10

// Text makes a program's description of its failure fit for the record.
func Text(s string) string {
	s = CleanText(s)
	if len(s) > maxText {
		s = CleanText(s[:maxText]) + "…"
	}
	return s
}

// CleanText makes a program's text fit to be stored: valid UTF-8 without NUL.
func CleanText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
