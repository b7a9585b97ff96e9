package a2ad_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

// The server compares hashes of what workers of all libraries send. The vectors are those of the Python library, so a
// task that one began can be continued by the other.
func TestFingerprintsAreThoseOfTheOtherLibraries(t *testing.T) {
	t.Parallel()
	type object struct {
		Amount int   `json:"amount"`
		Tags   []any `json:"tags"`
	}
	type leg struct {
		Train int `json:"train"`
		Bus   int `json:"bus"`
	}
	type trip struct {
		To string `json:"to"`
		By []leg  `json:"by"`
	}
	none := func(context.Context) error { return nil }
	step := func(args ...any) func(context.Context, *a2ad.Task) error {
		return func(ctx context.Context, t *a2ad.Task) error { return a2ad.Do(ctx, t, "a", none, a2ad.Input(args...)) }
	}
	for want, does := range map[string]func(ctx context.Context, t *a2ad.Task) error{
		"": func(ctx context.Context, t *a2ad.Task) error { return a2ad.Do(ctx, t, "a", none) },
		"44c2aaca127aff821b9b7f7bf5a2792c3286104f3420411ed35d9cc4e3d1614c": step(5),
		"59fb67c44d3307c6b6fef06a4bb3f9de38a203c7f6fcb2900a246a380d9f22af": step(
			"Zürich 🚆 <a&b> \u2028 \x7f \x01 \"q\" \\u2028"),
		"586c9d1d6d0f8cb57f02167325dee287976a95df1c16ebcf22a7a8234505b09f": step(object{5, []any{"a", nil, true, 2.5}}),
		"150513e810a9183d03aa1fe6b4eb36dd5f4cb4865505029c18a24cc93a80434c": step(1, "b"),
		"f9b680ca0da0e19b1be49bee0ae32804a868a9830a361022f3b961bd4fd1e781": step([]byte("abc")),
		"05fe4d41f7c2e1f550452d58bb902bb0fc2c6e754366b3dafcf44548b5bb8359": step(strings.Repeat("x", 17000)),
		"480cd41b4d4c61fc0d60be440f14500b0764465000b659ab937e1b6355013dfd": step(strings.Repeat("ä", 16000)),
		"4855e2c62671e27064ee7d0e6f7578cf178c48109aedf69d9042e320a6f28dc3": step(trip{"Lyon", []leg{{1, 2}}}),
		"bb9daf329e12ac95ae7faf0474cb8234189439d18376f735dc111dfaa359d0f3": step(nil),
		"ffe6c6c13148dbf9d43cf648965351749cc3a839f647ff6d01ef9a7e5c6c5fb2": func(
			ctx context.Context, t *a2ad.Task,
		) error {
			return t.Status(ctx, "Looking")
		},
		"b13e3458833d7e49d580e970644f8158ec26289427e3c1eb2a6d6dc8a8dbb9a3": func(
			ctx context.Context, t *a2ad.Task,
		) error {
			return t.Artifact("t").Append(ctx, a2ad.JSON(map[string]any{"a": []int{1}}))
		},
		"fc48ef2e37c374f48d4dfca583c89f718ff691993c51678c83d5ec89767e110c": func(
			ctx context.Context, t *a2ad.Task,
		) error {
			return t.Artifact("f").File(ctx, "a.txt", "text/plain", []byte("abc"))
		},
		"92862285b748a067de93e21f7cf50925ef607f8c0780102336563885fe13da86": func(
			ctx context.Context, t *a2ad.Task,
		) error {
			_, err := t.Ask(ctx, "Book it?", a2ad.Choices("yes", "no"), a2ad.Within(time.Hour))
			return err
		},
		"a3600533940c7ce6863091ed71e418e4f6ac5aa712f746e591115e5266e8435d": func(
			ctx context.Context, t *a2ad.Task,
		) error {
			_, err := t.AuthRequired(ctx, "Sign in")
			return err
		},
		"6b21f7018e4972720d4ae7868a6a7a3a78c20abb5213b6051dc1f928f2ea092e": func(
			ctx context.Context, t *a2ad.Task,
		) error {
			_, err := a2ad.Signal[any](ctx, t, "paid", 0)
			return err
		},
		"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a": func(
			ctx context.Context, t *a2ad.Task,
		) error {
			return t.Sleep(ctx, time.Hour)
		},
		"5b6d0935eaa6bf1c7fe1f31b56c731678e6f6a49adf160bc78c24b12110561ad": func(
			ctx context.Context, t *a2ad.Task,
		) error {
			_, err := t.Call(ctx, "b", "x")
			return err
		},
	} {
		if got := fingerprints(t, does)[0]; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	message := fingerprints(t, func(ctx context.Context, t *a2ad.Task) error {
		_, err := t.Call(ctx, "b", "Check <r-17>")
		return err
	})
	if want := "973501e12a639220f97c405b90164e900847701371a9ba766d7794afd254e1d8"; message[1] != want {
		t.Errorf("the message of a call: got %s, want %s", message[1], want)
	}
}

// fingerprints returns the hashes that the server computes: of the last input, and of the message of a call.
func fingerprints(t *testing.T, does func(ctx context.Context, t *a2ad.Task) error) (hashes [2]string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			return nil, does(ctx, t)
		})
		s.add("t", nil)
		synctest.Wait()
		stop()
		hash := func(data json.RawMessage, i int) {
			if data != nil {
				sum := sha256.Sum256(data)
				hashes[i] = hex.EncodeToString(sum[:])
			}
		}
		for _, r := range s.sent("events") {
			var batch struct {
				Events []struct {
					Step, Wait struct{ Input json.RawMessage }
					Call       struct{ Message json.RawMessage }
				}
			}
			if err := json.Unmarshal([]byte(r.body), &batch); err != nil {
				t.Fatal(err)
			}
			for _, e := range batch.Events {
				hash(e.Step.Input, 0)
				hash(e.Wait.Input, 0)
				hash(e.Call.Message, 1)
			}
		}
	})
	return hashes
}

// Clients reuse ids, so the answer to a question is the next message with its id.
func TestAnswersWithTheSameId(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			first, err := t.Ask(ctx, "First?")
			if err != nil {
				return nil, err
			}
			second, err := t.Ask(ctx, "Second?")
			return first + second, err
		})
		message := func(text string) any {
			return map[string]any{"messageId": "m", "role": "ROLE_USER", "parts": []any{map[string]any{"text": text}}}
		}
		over := func(key string) any {
			return map[string]any{
				"kind": "wait", "key": key, "endedAt": time.Now(),
				"result": map[string]any{"by": "message", "messageId": "m"},
			}
		}
		s.add("t", map[string]any{
			"messages": []any{message("x"), message("y"), message("z")}, "steps": []any{over("ask#1"), over("ask#2")},
			"stepCount": 2,
		})
		synctest.Wait()
		stop()
		if sent := s.sent("events"); len(sent) != 1 || !strings.Contains(sent[0].body, `{"text":"yz"}`) {
			t.Errorf("sent %v, want yz", sent)
		}
	})
}

// Keys of a handler begin with a hash of the checkpoint, which must be the same in all libraries too.
func TestKeysAreThoseOfTheOtherLibraries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		none := func(context.Context) error { return nil }
		_, stop := s.handle(func(ctx context.Context, t *a2ad.Task) (any, error) {
			err := a2ad.Do(ctx, t, "plan", none)
			if err == nil {
				err = t.Gather(ctx, func(ctx context.Context) error { return a2ad.Do(ctx, t, "look", none) })
			}
			return t.IdempotencyKey("pay"), err
		})
		message := func(id string) map[string]any {
			return map[string]any{"messageId": id, "role": "ROLE_USER", "parts": []any{map[string]any{"text": "x"}}}
		}
		s.add("t", map[string]any{
			"checkpoint": json.RawMessage(`{"n":1,"10":{"b":1,"a":2}}`), "messages": []any{message("b")},
			"task": map[string]any{"history": []any{message("b"), message("b")}}, // clients reuse ids
		})
		synctest.Wait()
		stop()
		sent := ""
		for _, r := range s.sent("events") {
			sent += r.body
		}
		for _, want := range []string{
			`"key":"m2/5c91750f/plan#1"`, `"key":"m2/5c91750f/gather#1.1/look#1"`, `{"text":"t:m2/pay"}`,
		} {
			if !strings.Contains(sent, want) {
				t.Errorf("nothing sent has %s:\n%s", want, sent)
			}
		}
	})
}
