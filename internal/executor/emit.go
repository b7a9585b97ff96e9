package executor

import (
	"context"
	"errors"
	"iter"

	"github.com/a2ad/a2ad/internal/a2a"
)

// ErrUnread is what emit of Emit returns when nobody reads the events any more.
var ErrUnread = errors.New("nobody reads the events any more")

// Emit is the sequence of what work hands to emit, and of its error, unless nobody reads that far. Work
// stops when emit fails: with the cause of ctx once that is done, else with ErrUnread.
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
