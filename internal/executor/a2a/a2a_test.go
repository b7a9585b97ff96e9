package a2a_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
)

var generations = []string{"0.3", "1.0"}

// each runs a test with an upstream of each generation, streaming and polled.
func each(t *testing.T, test func(t *testing.T, f *fake)) {
	for _, generation := range generations {
		for name, set := range map[string]func(*fake){
			"streaming": func(*fake) {},
			"polled":    func(f *fake) { f.streaming = false },
			"bare":      func(f *fake) { f.bare = true },
			"blind":     func(f *fake) { f.blind = true },
		} {
			t.Run(generation+" "+name, func(t *testing.T) {
				t.Parallel()
				f := newFake(t, generation)
				set(f)
				test(t, f)
			})
		}
	}
}

func checkTexts(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestUpstreamIsRelayed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fake) {
		f.program = [][]a2a.Event{{
			status(a2a.StateWorking), status(a2a.StateWorking, "thinking"), chunk("a", 0, "0"), chunk("a", 1,
				"1"), status(a2a.StateCompleted, "done"),
		}}
		k := newKeeper(t, f)
		k.say("go")
		k.finish()
		want := []string{"working thinking", "a= 0", "a+ 1", "completed done"}
		if !f.streaming {
			want = []string{"working thinking", "a= 0 1", "completed done"}
		}
		checkTexts(t, "the log", k.shows(), want)
		if n, _ := f.count(); n != 1 {
			t.Errorf("%d messages were sent, want 1", n)
		}
	})
}

// The attempt is killed after each event in turn. The upstream continues, and then the next attempt.
func TestKillAfterEachEventLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	const n = 4
	for _, meanwhile := range []int{0, 2, 100} {
		t.Run(fmt.Sprintf("%d events meanwhile", meanwhile), func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, f *fake) {
				for at := range n + 3 {
					f.forget()
					f.messages, f.pace, f.given, f.allowed = nil, true, 0, 1
					f.program = [][]a2a.Event{slices.Concat([]a2a.Event{status(a2a.StateWorking, "thinking")},
						chunksOf("a", n), []a2a.Event{status(a2a.StateCompleted, "done")})}
					k := newKeeper(t, f)
					k.say("go")
					seen := 0
					stop := func(e a2a.Event) bool {
						if _, ok := e.(*a2a.Checkpoint); !ok {
							f.allow(1)
							seen++
						}
						return seen == at && len(k.checkpoint) > 0
					}
					killed, err := k.run(bounded(t), stop)
					if err != nil {
						t.Fatal(err)
					}
					f.allow(meanwhile)
					if killed && k.task.Status.State != a2a.StateCompleted {
						at = -1
						if _, err = k.run(bounded(t), func(e a2a.Event) bool { stop(e); return false }); err != nil {
							t.Fatal(err)
						}
					}
					var want []string
					for i := range n {
						want = append(want, fmt.Sprint(i))
					}
					checkTexts(t, "the artifact", k.texts("a"), want)
					var said []string
					for _, s := range k.shows() {
						if s[:2] != "a=" && s[:2] != "a+" {
							said = append(said, s)
						}
					}
					checkTexts(t, "statuses", said, []string{"working thinking", "completed done"})
					if sent, _ := f.count(); sent != 1 {
						t.Errorf("%d messages were sent, want 1", sent)
					}
				}
			})
		})
	}
}
