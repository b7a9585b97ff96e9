package maintenance

import (
	"context"
	"time"

	"github.com/a2ad/a2ad/internal/backoff"
)

// repeat calls round every interval, with jitter, until ctx is done.
func repeat(ctx context.Context, every time.Duration, round func(context.Context)) error {
	timer := time.NewTimer(backoff.Jitter(every, nil))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		round(ctx)
		timer.Reset(backoff.Jitter(every, nil))
	}
}
