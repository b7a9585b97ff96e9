package tasks

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// holding runs a test with a combiner whose items may all be held, but for bad ones. Time passes only while everything
// waits.
func holding(t *testing.T, test func(t *testing.T, h *holder)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, c := newWriter(t, false)
		w.most = 1
		c.hold.most = holdTime
		c.patient = func(x *thing) bool { return x.bytes == 0 }
		others := uint64(1 << 32)
		c.task = func(x *thing) (id a2a.ID) { // called under the combiner's mutex
			if x.task == 0 {
				others++
				x.task = int(others)
			}
			binary.BigEndian.PutUint64(id[:], uint64(x.task))
			return id
		}
		h := &holder{t: t, writer: w, combiner: c}
		test(t, h)
		h.callers.Wait()
	})
}

type holder struct {
	t        *testing.T
	writer   *writer
	combiner *combiner[thing, int]
	callers  sync.WaitGroup
}

// put writes a thing without waiting for it. took returns how long it was under way.
func (h *holder) put(x *thing) (took func() time.Duration) {
	begin := time.Now()
	done := make(chan time.Duration, 1)
	h.callers.Go(func() {
		if err := put(h.t.Context(), h.combiner, x); err != nil {
			h.t.Error(err)
		}
		done <- time.Since(begin)
	})
	synctest.Wait()
	return func() time.Duration { return <-done }
}

// stream puts n things, one after every gap, and returns how long each was under way.
func (h *holder) stream(n int, gap time.Duration) (times []time.Duration) {
	took := make([]func() time.Duration, n)
	for i := range took {
		took[i] = h.put(&thing{n: i})
		time.Sleep(gap)
	}
	for _, f := range took {
		times = append(times, f())
	}
	return times
}

// sizes returns how many items each flush has had since the last call.
func (h *holder) sizes() (list []int) {
	h.writer.mu.Lock()
	defer h.writer.mu.Unlock()
	for _, f := range h.writer.flushes {
		list = append(list, len(f))
	}
	h.writer.flushes = nil
	return list
}

// fast is a gap at which a hold gathers ten items.
const fast = holdTime / 10

// hurry makes items arrive so fast that the next one is held.
func (h *holder) hurry() {
	for !h.held() {
		h.put(&thing{})
		time.Sleep(fast)
	}
	for range holdWorth {
		h.put(&thing{})
	}
	time.Sleep(holdTime)
	h.sizes()
}

func (h *holder) held() bool {
	h.combiner.mu.Lock()
	defer h.combiner.mu.Unlock()
	return h.combiner.hold.on
}

func TestPatientItemsShareAWrite(t *testing.T) {
	holding(t, func(t *testing.T, h *holder) {
		h.hurry()
		for i, took := range h.stream(40, fast) {
			if took > holdTime {
				t.Errorf("item %d took %v", i, took)
			}
		}
		if sizes := h.sizes(); len(sizes) > 5 {
			t.Errorf("40 items were written in groups of %d", sizes)
		}
	})
}

// Items that come seldom are never held.
func TestSlowItemsAreNotHeld(t *testing.T) {
	holding(t, func(t *testing.T, h *holder) {
		for _, gap := range []time.Duration{time.Hour, time.Second, 20 * time.Millisecond, holdTime / 2} {
			for i, took := range h.stream(50, gap) {
				if took > 0 {
					t.Errorf("one item every %v: number %d took %v", gap, i, took)
				}
			}
		}
		h.hurry()
		time.Sleep(time.Second)
		if took := h.put(&thing{})(); took > 0 {
			t.Errorf("the first item after a second took %v", took)
		}
	})
}

func TestUrgentItemEndsAHold(t *testing.T) {
	holding(t, func(t *testing.T, h *holder) {
		h.hurry()
		first := h.put(&thing{n: 1})
		time.Sleep(time.Millisecond)
		if took := h.put(&thing{n: 2, bytes: 1})(); took > 0 {
			t.Errorf("the urgent item took %v", took)
		}
		if took := first(); took != time.Millisecond {
			t.Errorf("the item before it took %v", took)
		}
		want(t, []int{2}, h.sizes())
	})
}

func TestManyItemsEndAHold(t *testing.T) {
	holding(t, func(t *testing.T, h *holder) {
		h.hurry()
		for i := range holdItems {
			h.put(&thing{n: i})
		}
		want(t, []int{holdItems}, h.sizes())
	})
}

// Callers that wait for their own items before they come again are written once all of them are there.
func TestCallersWaitForEachOtherOnly(t *testing.T) {
	for _, callers := range []int{1, 2, 3, 8, holdItems - 1} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			holding(t, func(t *testing.T, h *holder) {
				h.hurry()
				round := func() (held int) {
					took := make([]func() time.Duration, callers)
					for i := range took {
						took[i] = h.put(&thing{task: i + 1})
					}
					for _, f := range took {
						if f() > 0 {
							held++
						}
					}
					time.Sleep(fast)
					return held
				}
				for range 50 { // the first groups are of others, or too slow to be held
					round()
				}
				h.sizes()
				const rounds = 100
				for range rounds {
					if held := round(); held > 0 {
						t.Fatalf("%d of %d callers were held after all had come", held, callers)
					}
				}
				if sizes := h.sizes(); len(sizes) > rounds {
					t.Errorf("%d rounds were written in %d groups", rounds, len(sizes))
				}
			})
		})
	}
}

// One caller that does not come again delays the others once.
func TestCallerThatStaysAway(t *testing.T) {
	holding(t, func(t *testing.T, h *holder) {
		h.hurry()
		const callers = 8
		var held []int
		for n := range 5 {
			took := make([]func() time.Duration, callers)
			for i := range took {
				if n > 1 && i == 0 {
					took[i] = func() time.Duration { return 0 }
					continue
				}
				took[i] = h.put(&thing{task: i + 1})
			}
			late := 0
			for _, f := range took {
				if f() > 0 {
					late++
				}
			}
			held = append(held, late)
			time.Sleep(fast)
		}
		want(t, []int{callers, 0, callers - 1, 0, 0}, held)
	})
}

// Streams that report at random times share writes all the time, although some holds gather few of their items.
func TestStreamsAtRandomTimesShareWrites(t *testing.T) {
	holding(t, func(t *testing.T, h *holder) {
		h.hurry()
		random := rand.New(rand.NewPCG(1, 2))
		const items = 2000
		for i := range items {
			h.put(&thing{task: i%100 + 1})
			time.Sleep(time.Duration(random.ExpFloat64() * float64(holdTime) / 6))
		}
		h.callers.Wait()
		if groups := len(h.sizes()); groups > items/5 {
			t.Errorf("%d items, of which 6 come in the time of a hold, were written in %d groups", items, groups)
		}
	})
}

// Nothing is left over, whoever ends a hold.
func TestHeldItemsAreWrittenOnce(t *testing.T) {
	holding(t, func(t *testing.T, h *holder) {
		var wg sync.WaitGroup
		const callers, each = 20, 100
		for i := range callers {
			wg.Go(func() {
				for j := range each {
					n := i*each + j
					if err := put(t.Context(), h.combiner, &thing{n: n, bytes: n % 7 / 6}); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Duration(n%5) * fast)
				}
			})
		}
		wg.Wait()
		total := 0
		for _, n := range h.sizes() {
			total += n
		}
		if c := h.combiner; total != callers*each || c.writers > 0 || c.called || c.hold.on || len(c.queue) > 0 {
			t.Errorf("%d items were written, want %d; at the end there are %d writers and %d items",
				total, callers*each, c.writers, len(c.queue))
		}
	})
}

// Only events from the middle of a turn may wait.
func TestPatientBatches(t *testing.T) {
	t.Parallel()
	chunk := eventRow{kind: 2}
	for _, tt := range []struct {
		name  string
		batch pendingBatch
		want  bool
	}{
		{"a token", pendingBatch{lease: &Lease{LastSeq: 3}, rows: []eventRow{chunk}}, true},
		{"the first token", pendingBatch{lease: &Lease{LastSeq: 2}, rows: []eventRow{chunk}}, false},
		{"an end", pendingBatch{lease: &Lease{LastSeq: 3}, rows: []eventRow{chunk, {state: 100}}}, false},
		{"a step", pendingBatch{
			lease: &Lease{LastSeq: 3}, rows: []eventRow{chunk}, batch: Batch{Steps: make([]a2a.StepRecord, 1)},
		}, false},
		{"a checkpoint alone", pendingBatch{lease: &Lease{LastSeq: 3}, batch: Batch{Checkpoint: a2a.Raw("1")}}, false},
		{"many tokens", pendingBatch{lease: &Lease{LastSeq: 3}, rows: make([]eventRow, patientEvents)}, false},
	} {
		if got := tt.batch.patient(); got != tt.want {
			t.Errorf("%s: patient = %t", tt.name, got)
		}
		tt.batch.lease.TaskID = a2a.ID{1}
		if got := tt.batch.expected(); (got == a2a.ID{}) != (tt.name == "an end") {
			t.Errorf("%s: more is expected of %s", tt.name, got)
		}
	}
}
