package script_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/script"
	"github.com/a2ad/a2ad/internal/executor/script/model"
)

func TestBadCheckpoints(t *testing.T) {
	t.Parallel()
	for _, c := range []string{
		`{}`, `[]`, `null`, `x`, `{"seen":1,"program":0,"op":0,"chunk":0}`,
		`{"seen":1,"program":0,"op":0,"chunk":0,"waiting":1}`,
		`{"seen":2,"program":0,"op":0,"chunk":0,"waiting":false}`,
		`{"seen":1,"program":1,"op":0,"chunk":0,"waiting":false}`,
		`{"seen":1,"program":0,"op":0,"chunk":0,"waiting":true}`,
		`{"seen":1,"program":0,"op":1,"chunk":0,"waiting":true}`,
		`{"seen":1,"program":0,"op":2,"chunk":0,"waiting":false}`,
		`{"seen":1,"program":0,"op":0,"chunk":5,"waiting":false}`,
		`{"seen":0,"program":0,"op":0,"chunk":0,"waiting":false}`,
		`{"seen":1,"program":0,"op":1,"chunk":1,"waiting":false}`,
		`{"seen":1,"program":-1,"op":0,"chunk":0,"waiting":false}`,
	} {
		s := newServer(script.Config{})
		s.send(play(`[{"op":"chunk","id":"a","n":5}]`))
		s.checkpoint = a2a.Raw(c)
		if _, err := s.run(t.Context(), never); !executor.IsPermanent(err) || len(s.log) > 0 {
			t.Errorf("%s: %d events, error %v, want a permanent one", c, len(s.log), err)
		}
	}
}

const everything = `[{"op":"status","text":"s"},{"op":"chunk","id":"a","n":4,"bytes":9,"every_ms":5},
	{"op":"sleep","ms":5},{"op":"sleep","ms":5},{"op":"artifact","id":"a","text":"again"},
	{"op":"error","times":1},{"op":"ignore_cancel","ms":1},{"op":"input","text":"?"},
	{"op":"sleep","ms":5},{"op":"chunk","id":"b","n":3},{"op":"auth"},{"op":"error","times":2},
	{"op":"artifact","id":"c","text":"c"},{"op":"complete","text":"done"}]`

// The script has every kind of op. In each turn the first attempt dies at every yield, and the second at every
// later yield. So attempts die before and after every write.
func TestCrashAtEveryPoint(t *testing.T) {
	t.Parallel()
	want, end := model.Expected(never, everything, "", "")
	if end != model.Done {
		t.Fatal("the model does not finish")
	}
	synctest.Test(t, func(t *testing.T) {
		for first := range 40 {
			for second := range 40 {
				s := newServer(script.Config{})
				for _, m := range []a2a.Message{play(everything), say("m", "go"), say("m", "go")} {
					s.send(m)
					if ended, _ := s.run(t.Context(), first); ended {
						continue
					}
					if ended, _ := s.run(t.Context(), second); ended {
						continue
					}
					s.finish(t)
				}
				if diff := cmp.Diff(want, s.events()); diff != "" {
					t.Fatalf("crashes at %d and %d (-want +got):\n%s", first, second, diff)
				}
			}
		}
	})
}

func TestEffect(t *testing.T) {
	t.Parallel()
	var got []string
	answer := http.StatusServiceUnavailable
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.Method+" "+r.Header.Get("Content-Type")+" "+string(body))
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(answer)
	}))
	defer sink.Close()
	s := newServer(script.Config{})
	s.send(play(`[{"op":"artifact","id":"a"},{"op":"effect","url":"` + sink.URL + `","key":"k\"1"}]`))
	for _, answer = range []int{http.StatusServiceUnavailable, http.StatusFound, http.StatusNoContent} {
		ended, err := s.run(t.Context(), never)
		if ended != (answer == http.StatusNoContent) || (err == nil) != ended || executor.IsPermanent(err) {
			t.Errorf("answer %d: ended %v, error %v", answer, ended, err)
		}
	}
	var want []string
	for n := 1; n <= 3; n++ {
		want = append(want,
			fmt.Sprintf(`POST application/json {"task":"%s","epoch":%d,"attempt":%d,"step":1,"key":"k\"1"}`, s.task.ID,
				n, n))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// An attempt dies in a long op after an op without an event: the next attempt must not repeat the earlier op.
func TestCheckpointsOfOpsWithoutEvents(t *testing.T) {
	t.Parallel()
	for _, long := range []string{`{"op":"hang"}`, `{"op":"sleep","ms":86400000}`, `{"op":"error","times":5}`} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			s := newServer(script.Config{})
			s.send(play(`[{"op":"sleep","ms":1000},` + long + `]`))
			if ended, err := s.run(ctx, never); ended || err == nil {
				t.Fatalf("%s: ended %v, error %v", long, ended, err)
			}
			if want := `{"seen":1,"program":0,"op":1,"chunk":0,"waiting":false}`; string(s.checkpoint) != want {
				t.Errorf("%s: the checkpoint is %s, want %s", long, s.checkpoint, want)
			}
		})
	}
}

func TestEffectChecksTheAddress(t *testing.T) {
	t.Parallel()
	allow := func(a netip.Addr) bool { return netip.MustParsePrefix("192.0.2.0/24").Contains(a) }
	for _, tc := range []struct {
		url       string
		permanent bool
	}{
		{"http://198.51.100.1/", true}, {"http://[2001:db8::1]/", true}, {"http://[::ffff:198.51.100.1]/",
			true}, {"http://0.0.0.0:1/", true},
		{"http://127.0.0.1:1/", true}, {"http://[::ffff:127.0.0.1]:1/", true}, {"http://[::1]:1/",
			true}, {"http://localhost:1/", true}, {"http://192.0.2.1/", false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		s := newServer(script.Config{Allow: allow})
		s.send(play(`[{"op":"effect","url":"` + tc.url + `"}]`))
		_, err := s.run(ctx, never)
		cancel()
		if err == nil || executor.IsPermanent(err) != tc.permanent {
			t.Errorf("%s: error %v, want permanent %v", tc.url, err, tc.permanent)
		}
	}
}

// TestCrashesLeaveTheModel plays random scripts with random crashes.
func TestCrashesLeaveTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		scripts := rapid.SliceOfN(rapid.Custom(drawScript), 1, 4).Draw(r, "scripts")
		for i := range scripts[1:] {
			if rapid.Bool().Draw(r, "plain") {
				scripts[i+1] = ""
			}
		}
		crashes := rapid.SliceOfN(rapid.IntRange(0, 12), 0, 30).Draw(r, "crashes")
		want, _ := model.Expected(never, scripts...)
		s := newServer(script.Config{})
		synctest.Test(t, func(t *testing.T) {
			for _, text := range scripts {
				if s.task.Status.State.Terminal() {
					break
				}
				m := say("m", "go")
				if text != "" {
					m = play(text)
				}
				s.send(m)
				ended := false
				for ; !ended && len(crashes) > 0; crashes = crashes[1:] {
					ended, _ = s.run(t.Context(), crashes[0])
				}
				if !ended {
					s.finish(t)
				}
			}
		})
		if diff := cmp.Diff(want, s.events()); diff != "" {
			r.Fatalf("scripts %q (-want +got):\n%s", scripts, diff)
		}
	})
}

func drawScript(r *rapid.T) string {
	op := rapid.Custom(func(r *rapid.T) string {
		id := rapid.SampledFrom([]string{"a", "b"}).Draw(r, "id")
		n := rapid.IntRange(1, 5).Draw(r, "n")
		switch rapid.IntRange(0, 9).Draw(r, "op") {
		case 0:
			return fmt.Sprintf(`{"op":"status","state":"working","text":"s%d"}`, n)
		case 1, 2, 3:
			return fmt.Sprintf(`{"op":"chunk","id":%q,"n":%d,"bytes":%d,"every_ms":%d}`, id, n, 2*n, n%2)
		case 4:
			return fmt.Sprintf(`{"op":"artifact","id":%q,"text":"t%d"}`, id, n)
		case 5:
			return fmt.Sprintf(`{"op":"sleep","ms":%d}`, n)
		case 6:
			return fmt.Sprintf(`{"op":"error","times":%d}`, n)
		case 7:
			return fmt.Sprintf(`{"op":"ignore_cancel","ms":%d}`, n)
		case 8:
			return rapid.SampledFrom([]string{`{"op":"input","text":"?"}`, `{"op":"auth"}`}).Draw(r, "ask")
		}
		return rapid.SampledFrom([]string{`{"op":"complete"}`, `{"op":"fail","text":"f"}`, `{"op":"reject"}`,
			`{"op":"status"}`, `{"op":"status"}`, `{"op":"status"}`}).Draw(r, "end")
	})
	return "[" + strings.Join(rapid.SliceOfN(op, 0, 8).Draw(r, "ops"), ",") + "]"
}

func FuzzScript(f *testing.F) {
	f.Add(everything, `{"seen":1,"program":0,"op":1,"chunk":2,"waiting":false}`)
	f.Add(`[{"op":"input"}]`, `{"seen":1,"program":0,"op":1,"chunk":0,"waiting":true}`)
	f.Fuzz(func(t *testing.T, ops, checkpoint string) {
		if strings.Contains(ops, "panic") || strings.Contains(ops, "effect") || strings.Contains(ops, "\\") ||
			strings.Contains(ops, "ms") {
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s := newServer(script.Config{})
		s.send(play(ops))
		if checkpoint != "" {
			s.checkpoint = a2a.Raw(checkpoint)
		}
		_, _ = s.run(ctx, 10_000)
	})
}
