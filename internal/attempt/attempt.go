// Package attempt is what all attempts at a task have in common, whoever makes them: which
// events may be stored, how much a task may grow, and what becomes of it when an attempt fails.
//
// The worker of this process and workers far away go by the same rules because they are here.
// It knows leases and events; it knows neither executors nor HTTP, and it starts nothing.
package attempt

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/store"
)

// Bounds is how much a task may grow. Zero means no limit.
type Bounds struct {
	Bytes     int64
	Events    int64
	Artifacts int
}

// Admit refuses what would make the task too large. The event that ends a turn is always
// taken: without it a task at its limit could not end.
func (b Bounds) Admit(l *store.Lease, events, bytes int, ends bool) error {
	if b.Events > 0 && l.LastSeq+int64(events) > b.Events && !ends {
		return fmt.Errorf("the task would have more than %d events", b.Events)
	}
	if b.Bytes > 0 && l.Bytes+int64(bytes) > b.Bytes {
		return fmt.Errorf("the task would be larger than %d bytes", b.Bytes)
	}
	return nil
}

// TooMany refuses one more artifact than a task may have.
func (b Bounds) TooMany(artifacts int) error {
	if b.Artifacts > 0 && artifacts > b.Artifacts {
		return fmt.Errorf("the task would have more than %d artifacts", b.Artifacts)
	}
	return nil
}

// Failure is why an attempt did not end its turn.
type Failure struct {
	Text  string        // for the record of attempts and the client
	Final bool          // another attempt would be no use
	Delay time.Duration // before the next attempt; 0: by the agent's backoff
}

// Ended is what became of the task.
type Ended struct {
	Failed bool          // for good
	Again  time.Duration // else: when it is available again
}

// Fail settles a failed attempt: the task is given back for another one while attempts are
// left, unless that would be no use, and fails else. It returns store.ErrLeaseLost, and has
// changed nothing, if the lease is no longer held.
func Fail(ctx context.Context, s *store.Store, l *store.Lease, limits a2a.Limits, f Failure) (Ended, error) {
	f.Text = Text(f.Text)
	if !f.Final && l.Attempt < limits.MaxAttempts {
		if f.Delay == 0 {
			f.Delay = backoff.Policy{Base: limits.BackoffBase, Max: limits.BackoffMax}.Delay(l.Attempt, nil)
		}
		return Ended{Again: f.Delay}, s.Retry(ctx, l, f.Text, f.Delay)
	}
	text := f.Text
	if !f.Final {
		text = fmt.Sprintf("attempt %d of %d: %s", l.Attempt, limits.MaxAttempts, text)
	}
	status := &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateFailed, Message: &a2a.Message{
		ID: store.NewUID().String(), Role: a2a.RoleAgent, Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}},
	}}}
	_, err := s.Append(ctx, l, store.Batch{Events: []a2a.Event{status}, Error: text})
	return Ended{Failed: true}, err
}

const maxText = 1 << 10

// Text makes what a program says of its failure fit for the record.
func Text(s string) string {
	s = CleanText(s)
	if len(s) > maxText {
		s = CleanText(s[:maxText]) + "…"
	}
	return s
}

// CleanText makes text of a program fit to be stored: valid UTF-8 without NUL.
func CleanText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
