package a2ad_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

// A wrong program does not fail its task: the mistake is recorded, and the task waits. That holds for what the package
// refuses, and for what only the server can.
func TestMistakesPostponeTheTask(t *testing.T) {
	t.Parallel()
	called := func(ctx context.Context, t *a2ad.Task) (any, error) {
		_, err := t.Call(ctx, "nobody", "x")
		return nil, err
	}
	slept := func(ctx context.Context, t *a2ad.Task) (any, error) { return nil, t.Sleep(ctx, tooLong) }
	answered := func(context.Context, *a2ad.Task) (any, error) { return func() {}, nil }
	for name, c := range map[string]struct {
		agent   a2ad.AgentFunc
		before  int // how often the task was postponed before
		pause   string
		mistake string
	}{
		"a wrong argument": {slept, 0, "5.000s", "the duration must be between"},
		"a wrong result":   {answered, 1, "10.000s", "what the agent returned"},
		"a refusal":        {called, 30, "300.000s", `no agent "nobody"`},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t)
			s.answer = func(r request) (int, string) {
				if strings.Contains(r.body, `"call"`) {
					return 400, `{"error": {"reason": "INVALID_ARGUMENT", "message": "no agent \"nobody\""}}`
				}
				return 0, ""
			}
			_, stop := s.work(a2ad.Options{}, c.agent)
			more := map[string]any{}
			if c.before > 0 {
				more["steps"] = []any{map[string]any{
					"kind": "step", "key": "postponed", "name": "postponed", "attempts": c.before, "nextAt": time.Now(),
				}}
				more["stepCount"] = 1
			}
			s.add("t", more)
			synctest.Wait()
			stop()
			if n := len(s.sent("finish")); n != 0 {
				t.Errorf("%s: %d attempts ended, want 0", name, n)
			}
			sent := s.sent("events")
			var batch struct {
				Events []struct {
					Step struct {
						Key      string
						Error    struct{ Message string }
						Attempts int
					}
					Wait struct{ Key, For string }
				}
			}
			if err := json.Unmarshal([]byte(sent[len(sent)-1].body), &batch); err != nil || len(batch.Events) != 2 {
				t.Fatalf("%s: sent %v, %v", name, sent, err)
			}
			step, wait := batch.Events[0].Step, batch.Events[1].Wait
			if step.Key != "postponed" || step.Attempts != c.before+1 ||
				!strings.Contains(step.Error.Message, c.mistake) {
				t.Errorf("%s: recorded %+v, want %q", name, step, c.mistake)
			}
			if !strings.HasPrefix(wait.Key, "postponed/pause#") || wait.For != c.pause {
				t.Errorf("%s: waits %+v, want %s", name, wait, c.pause)
			}
		})
	}
}
