package console

import (
	"slices"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/stream"
)

func TestEventsThatAStreamSkipsAreMissing(t *testing.T) {
	t.Parallel()
	d := &drop{Seq: 3, Last: 3}
	for _, seq := range []int64{4, 6, 9} {
		entry := a2a.Entry{Seq: seq, Event: &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking}}}
		d.add(new(shown), &engine.Frame{Item: &stream.Item{Entry: entry}}, "c")
	}
	if want := []int64{5, 7, 8}; !slices.Equal(d.Missing, want) || d.Last != 9 || len(d.Frames) != 3 {
		t.Errorf("missing are %v of %d frames to %d, want %v", d.Missing, len(d.Frames), d.Last, want)
	}
}
