package replica

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/a2ad/a2ad/internal/notify"
)

// TestUseOfAKeyIsRecordedWhenTheReplicaStops: the replica stops while it records a use, and another
// use is waiting.
func TestUseOfAKeyIsRecordedWhenTheReplicaStops(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	var recorded []string
	c := &credentials{
		used: make(chan string, maxUsedKeys), database: &database{hub: &notify.Hub{}},
		log: slog.New(slog.DiscardHandler),
		use: func(ctx context.Context, id string) error {
			stop()
			if err := ctx.Err(); err != nil {
				return err
			}
			recorded = append(recorded, id)
			return nil
		},
	}
	c.keyUsed("first")
	c.keyUsed("second")
	if err := c.followKeys(ctx); err != nil {
		t.Fatal(err)
	}
	if want := []string{"first", "second"}; !slices.Equal(recorded, want) {
		t.Errorf("recorded %q, want %q", recorded, want)
	}
}
