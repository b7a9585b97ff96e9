package a2a_test

import (
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
)

func texts(list ...string) (parts []a2a.Part) {
	for _, s := range list {
		parts = append(parts, a2a.Part{Kind: a2a.PartText, Text: s})
	}
	return parts
}

// Streams of a task share its events, so Fold must not change them.
func TestFoldDoesNotChangeEvents(t *testing.T) {
	t.Parallel()
	roomy := append(make([]a2a.Part, 0, 8), texts("1", "2")...)
	for _, replaces := range []bool{false, true} {
		var list []a2a.Artifact
		if replaces {
			list = a2a.Fold(list, &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a", Parts: texts("0")}})
		}
		list = a2a.Fold(list, &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a", Parts: roomy}})
		list = a2a.Fold(list, &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a", Parts: texts("3")}, Append: true})
		if diff := cmp.Diff([]a2a.Artifact{{ID: "a", Parts: texts("1", "2", "3")}}, list); diff != "" {
			t.Errorf("artifacts (-want +got):\n%s", diff)
		}
		if after := roomy[:3][2]; after.Text != "" {
			t.Errorf("after the parts of the event got %q", after.Text)
		}
	}
}

// The allocated memory must grow linearly with the number of chunks.
func TestFoldCostPerChunkIsConstant(t *testing.T) { //nolint:paralleltest // allocations of parallel tests would count
	allocated := func(chunks int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var list []a2a.Artifact
		u := &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a", Parts: texts("x")}, Append: true}
		for range chunks {
			list = a2a.Fold(list, u)
		}
		runtime.ReadMemStats(&after)
		if n := len(list[0].Parts); n != chunks {
			t.Fatalf("%d parts, want %d", n, chunks)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := allocated(1000), allocated(10_000); many > 30*few {
		t.Errorf("1,000 chunks allocate %d bytes, and 10,000 allocate %d", few, many)
	}
}
