package executor

import (
	"context"
	"errors"
	"iter"

	"github.com/a2ad/a2ad/internal/a2a"
)

// ErrUnread is the error of emit after the caller has stopped reading.
var ErrUnread = errors.New("the caller has stopped reading events")

// Emit returns the sequence of the events that work passes to emit, and then its error. Work must stop when emit
// fails: with the cause of ctx once that is done, or with ErrUnread if the caller has stopped reading.
func Emit(ctx context.Context, work func(emit func(a2a.Event) error) error) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		stopped := false
		err := work(func(event a2a.Event) error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if !yield(event, nil) {
				stopped = true
				return ErrUnread
			}
			return nil
		})
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}
