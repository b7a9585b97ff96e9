package notify

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func set(keys ...string) map[string]struct{} {
	m := make(map[string]struct{})
	for _, k := range keys {
		m[k] = struct{}{}
	}
	return m
}

func TestPayloadForm(t *testing.T) {
	t.Parallel()
	tests := []struct {
		replica, key, want string
	}{
		{"r1", "task:0190a1b2-c3d4-7e5f-8a9b-00000000dead", "r1 task:0190a1b2-c3d4-7e5f-8a9b-00000000dead"},
		{"r1", All, "r1 *"},
		{"host one", "ready:50 %", "host%20one ready:50%20%25"},
		{"r1", "ready:wörter\n\x00", "r1 ready:w%c3%b6rter%0a%00"},
		{"r1", strings.Repeat("x", maxPayload-3), "r1 " + strings.Repeat("x", maxPayload-3)},
		{"r1", strings.Repeat("x", maxPayload-2), "r1 *"},
	}
	for _, tt := range tests {
		got := pack(tt.replica, set(tt.key))
		if len(got) != 1 || got[0] != tt.want {
			t.Errorf("pack(%q, %.40q) = %.60q, want %.60q", tt.replica, tt.key, got, tt.want)
		}
	}
	if got := pack("r1", nil); len(got) != 0 {
		t.Errorf("no keys: %q, want nothing", got)
	}
}

func TestPayloadsAreFilledUpToTheLimit(t *testing.T) {
	t.Parallel()
	keys := set(taskKeys(1000)...)
	payloads := pack("r1", keys)
	if len(payloads) != 6 { // 185 keys of 42 bytes in each
		t.Errorf("%d payloads, want 6", len(payloads))
	}
	got := set()
	for _, p := range payloads {
		if len(p) > maxPayload {
			t.Errorf("payload of %d bytes", len(p))
		}
		_, some, ok := parse(p)
		if !ok {
			t.Fatalf("parse %.60q", p)
		}
		maps.Copy(got, set(some...))
	}
	if !maps.Equal(got, keys) {
		t.Errorf("%d of %d keys came through", len(got), len(keys))
	}
}

func TestUnreadablePayloads(t *testing.T) {
	t.Parallel()
	for _, p := range []string{
		"", " ", "r1", "r1 ", " task:a", "r1  task:a", "r1 task:a ", "r1 a\nb", "r1 %", "r1 %4", "r1 %zz", "r1 wörter",
		"r1\ttask:a", "\x00", strings.Repeat("a ", maxPayload),
	} {
		if replica, keys, ok := parse(p); ok {
			t.Errorf("parse(%.40q) = %q, %q, want refusal", p, replica, keys)
		}
	}
}

func TestAnyKeysSurviveThePayload(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.StringN(1, 30, 60), rapid.StringMatching(`(task|ready):[0-9a-f-]{1,36}`),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 60), func(b []byte) string { return string(b) }))
		replica := name.Draw(t, "replica")
		keys := set(rapid.SliceOfN(name, 0, 300).Draw(t, "keys")...)
		got := set()
		for _, p := range pack(replica, keys) {
			if len(p) > maxPayload || !utf8.ValidString(p) || strings.Contains(p, "\x00") {
				t.Fatalf("PostgreSQL would refuse %q", p)
			}
			from, some, ok := parse(p)
			if !ok || from != replica {
				t.Fatalf("parse = %q, %t, want %q", from, ok, replica)
			}
			maps.Copy(got, set(some...))
		}
		if !maps.Equal(got, keys) {
			t.Fatalf("got %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(keys)))
		}
	})
}

func FuzzPayload(f *testing.F) {
	for _, s := range []string{"r1 task:a ready:b", "r1 *", "host%20one ready:50%25", "", "r1", "%", "r1 %2a",
		"hello world"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		replica, keys, ok := parse(payload)
		if !ok {
			if replica != "" || keys != nil {
				t.Fatalf("parse(%q) refused, but returned %q, %q", payload, replica, keys)
			}
			return
		}
		if replica == "" || len(keys) == 0 || slices.Contains(keys, "") {
			t.Fatalf("parse(%q) = %q, %q", payload, replica, keys)
		}
		if len(escape(replica)) > maxReplica {
			return // no Publisher sends it
		}
		got := set()
		for _, p := range pack(replica, set(keys...)) {
			from, some, ok := parse(p)
			if !ok || from != replica {
				t.Fatalf("parse(%q) = %q, %t, want %q", p, from, ok, replica)
			}
			maps.Copy(got, set(some...))
		}
		// What was read can be written; only a key too long for a payload may become All.
		if _, all := got[All]; !all && !maps.Equal(got, set(keys...)) {
			t.Fatalf("%q: got %q, want %q", payload, got, keys)
		}
	})
}
