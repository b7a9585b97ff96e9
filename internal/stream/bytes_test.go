package stream_test

import (
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
)

// large adds n events of size bytes to a log.
func (f *fixture) large(task a2a.ID, n, size int) []a2a.Entry {
	entries := f.log.commit(task, n)
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	log := f.log.entries[task]
	for i := len(log) - n; i < len(log); i++ {
		log[i].Event = &a2a.ArtifactUpdate{Artifact: a2a.Artifact{Parts: []a2a.Part{{Kind: a2a.PartText,
			Text: strings.Repeat("x", size)}}}}
	}
	copy(entries, log[len(log)-n:])
	return entries
}

// TestPagesOfLargeEventsAreSmall: a cursor that reads the log gets every event, and never many
// large ones at once.
func TestPagesOfLargeEventsAreSmall(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := db.NewTaskID()
	f.large(task, 30, 300<<10)
	f.large(task, 2, 3<<20) // each larger than a page
	f.large(task, 30, 300<<10)
	for _, head := range []int64{1, 62} { // with the topic, and by itself
		c := f.follow(task, 0, head)
		for after := int64(0); after < 62; {
			items, err := c.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for _, it := range items {
				if after++; it.Seq != after {
					t.Fatalf("got %d, want %d", it.Seq, after)
				}
				size += it.Size()
			}
			if size > 1<<20 && len(items) > 1 {
				t.Errorf("%d events of %d bytes at once", len(items), size)
			}
		}
	}
}

// TestTopicsKeepLittleWhileAllKeepTooMuch: a reader of many logs gets every event, although few are
// kept.
func TestTopicsKeepLittleWhileAllKeepTooMuch(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	f.KeepAtMost(1 << 20)
	for range 20 {
		task := db.NewTaskID()
		f.log.commit(task, 1)
		c := f.follow(task, 1, 1)
		f.committed(task, f.large(task, 5, 100<<10))
		defer read(t, c, 1, 6)
	}
	if kept := f.Kept(); kept > 1<<20+20*4<<10 {
		t.Errorf("%d bytes are kept, want fewer", kept)
	}
}
