package seal_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/seal"
)

var here = seal.Cell{Table: "push_configs", Row: "019a9f3e-0000-7000-8000-000000000001", Column: "token"}

func ring(t testing.TB, keys ...string) seal.Ring {
	t.Helper()
	r, err := seal.Parse(strings.Join(keys, ","))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustSeal(t testing.TB, r seal.Ring, plaintext string) []byte {
	t.Helper()
	sealed, err := r.Seal([]byte(plaintext), here)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestOpenReturnsTheSealedText(t *testing.T) {
	t.Parallel()
	r := ring(t, seal.Generate("k1"))
	rapid.Check(t, func(t *rapid.T) {
		plaintext := rapid.SliceOf(rapid.Byte()).Draw(t, "plaintext")
		part := rapid.StringMatching(`[^|]+`)
		at := seal.Cell{Table: part.Draw(t, "table"), Row: part.Draw(t, "row"), Column: part.Draw(t, "column")}
		sealed, err := r.Seal(plaintext, at)
		if err != nil {
			t.Fatal(err)
		}
		if len(plaintext) > 8 && bytes.Contains(sealed, plaintext) {
			t.Fatal("stored in clear")
		}
		got, err := r.Open(sealed, at)
		if err != nil || !bytes.Equal(got, plaintext) {
			t.Fatalf("got %q, %v; want %q", got, err, plaintext)
		}
	})
}

func TestSealIsRandomized(t *testing.T) {
	t.Parallel()
	r := ring(t, seal.Generate("k1"))
	if bytes.Equal(mustSeal(t, r, "x"), mustSeal(t, r, "x")) {
		t.Error("equal secrets have equal ciphertexts")
	}
}

func TestSecretOpensOnlyInItsCell(t *testing.T) {
	t.Parallel()
	r := ring(t, seal.Generate("k1"))
	sealed := mustSeal(t, r, "secret")
	for name, at := range map[string]seal.Cell{
		"another table":  {Table: "server_keys", Row: here.Row, Column: here.Column},
		"another row":    {Table: here.Table, Row: here.Row + "0", Column: here.Column},
		"another column": {Table: here.Table, Row: here.Row, Column: "credentials"},
		"shifted parts":  {Table: here.Table + "|" + here.Row, Row: here.Column, Column: "x"},
		"no cell":        {},
	} {
		if got, err := r.Open(sealed, at); !errors.Is(err, seal.ErrBroken) || got != nil {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	for _, at := range []seal.Cell{{}, {Table: "a", Row: "b"}, {Table: "a|b", Row: "c", Column: "d"},
		{Table: "a", Row: "b|c", Column: "d"}} {
		if _, err := r.Seal([]byte("x"), at); err == nil {
			t.Errorf("sealed for %+v", at)
		}
	}
}

func TestChangedSecretsDoNotOpen(t *testing.T) {
	t.Parallel()
	r := ring(t, seal.Generate("k1"), seal.Generate("k2"))
	sealed := mustSeal(t, r, "secret")
	for i := range sealed {
		for bit := range 8 {
			broken := bytes.Clone(sealed)
			broken[i] ^= 1 << bit
			if got, err := r.Open(broken, here); err == nil || got != nil {
				t.Errorf("bit %d of byte %d: opened as %q", bit, i, got)
			}
		}
	}
	for n := range sealed {
		if _, err := r.Open(sealed[:n], here); err == nil {
			t.Errorf("opened the first %d bytes", n)
		}
	}
	if _, err := r.Open(append(bytes.Clone(sealed), 0), here); err == nil {
		t.Error("opened with a byte more")
	}
}

// The first key encrypts, all keys decrypt, and an error names a key that was removed.
func TestRotation(t *testing.T) {
	t.Parallel()
	k1, k2 := seal.Generate("k1"), seal.Generate("k2")
	old, both, late := ring(t, k1), ring(t, k2, k1), ring(t, k2)
	sealed := mustSeal(t, old, "secret")
	if id, ok := seal.KeyID(sealed); id != "k1" || !ok {
		t.Errorf("KeyID = %q, %t", id, ok)
	}
	if old.NeedsRewrap(sealed) || !both.NeedsRewrap(sealed) {
		t.Errorf("NeedsRewrap = %t with its own key first, %t with another", old.NeedsRewrap(sealed),
			both.NeedsRewrap(sealed))
	}
	got, err := both.Open(sealed, here)
	if err != nil || string(got) != "secret" {
		t.Fatalf("got %q, %v", got, err)
	}
	again := mustSeal(t, both, string(got))
	if both.NeedsRewrap(again) {
		t.Error("needs to be rewrapped after it was")
	}
	if got, err := late.Open(again, here); err != nil || string(got) != "secret" {
		t.Errorf("after the old key was removed: got %q, %v", got, err)
	}
	if _, err := late.Open(sealed, here); !errors.Is(err, seal.ErrUnknownKey) || !strings.Contains(err.Error(), "k1") {
		t.Errorf("with a removed key: %v", err)
	}
	// A new key with the id of an old one does not decrypt secrets of the old one.
	if _, err := ring(t, seal.Generate("k1")).Open(sealed, here); !errors.Is(err, seal.ErrBroken) {
		t.Errorf("with another key of the same id: %v", err)
	}
}

func TestEmptyRingSealsNothing(t *testing.T) {
	t.Parallel()
	sealed := mustSeal(t, ring(t, seal.Generate("k1")), "secret")
	for _, text := range []string{"", " \n"} {
		r := ring(t, text)
		if got, err := r.Seal([]byte("secret"), here); !errors.Is(err, seal.ErrNoKeys) || got != nil || !r.Empty() {
			t.Errorf("got %q, %v", got, err)
		}
		if _, err := r.Open(sealed, here); !errors.Is(err, seal.ErrUnknownKey) {
			t.Errorf("opening: %v", err)
		}
		if r.NeedsRewrap(sealed) {
			t.Error("wants to rewrap without a key")
		}
	}
}

func TestParseRefusesInvalidRings(t *testing.T) {
	t.Parallel()
	const hunter = "aHVudGVyMg==" // 7 bytes
	good := strings.TrimPrefix(seal.Generate("k"), "k:")
	for text, want := range map[string]string{
		hunter: "key 1 is not of the form", "k1:" + hunter: `key "k1" is not 32 bytes`,
		"k1:" + good + ",": "key 2 is not of the form", "k1:" + good + ",k1:" + good: `key id "k1" is there twice`,
		":" + good: "key 1 is not", "k 1:" + good: "key 1 is not", "k|1:" + good: "key 1 is not",
		strings.Repeat("k", 33) + ":" + good: "key 1 is not", "k1:!" + good[1:]: `key "k1" is not`,
		"k1:" + good + good: `key "k1" is not`,
		"k1:" + base64.StdEncoding.EncodeToString(make([]byte, 16)): `key "k1" is not 32 bytes`,
	} {
		_, err := seal.Parse(text)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), hunter) ||
			strings.Contains(err.Error(), good[:12]) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
		var r seal.Ring
		if err := r.UnmarshalText([]byte(text)); err == nil || !r.Empty() {
			t.Errorf("UnmarshalText(%q) = %v", text, err)
		}
	}
	var r seal.Ring
	if err := r.UnmarshalText(nil); err == nil {
		t.Error("got no error for a setting without a key")
	}
	if err := r.UnmarshalText([]byte(" k2:" + good + " , k1:" + good + "\n")); err != nil ||
		fmt.Sprint(r.IDs()) != "[k2 k1]" {
		t.Errorf("got %v, %v", r.IDs(), err)
	}
}

func TestKeysAreNotPrinted(t *testing.T) {
	t.Parallel()
	raw := []byte("hunter2hunter2hunter2hunter2hunt")
	text := "k1:" + base64.StdEncoding.EncodeToString(raw)
	r := ring(t, text)
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "ring", r, "in", struct{ R seal.Ring }{r})
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "ring", r, "in", struct{ R *seal.Ring }{&r})
	js, err := json.Marshal(map[string]any{"r": r, "p": &r})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(js)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&out, verb+"\n", r)
		fmt.Fprintf(&out, verb+"\n", &r)
		fmt.Fprintf(&out, verb+"\n", struct{ r seal.Ring }{r})
	}
	for _, bad := range []string{"hunter2", text[3:20], fmt.Sprintf("%x", "hunter2"), fmt.Sprintf("%X", "hunter2"),
		"104 117 110"} {
		if strings.Contains(out.String(), bad) {
			t.Errorf("%q is seen in\n%s", bad, &out)
		}
	}
	if !strings.Contains(out.String(), "k1:[redacted]") {
		t.Errorf("no id in\n%s", &out)
	}
}

// FuzzOpen checks that only results of Seal can be opened, and that no input causes a panic.
func FuzzOpen(f *testing.F) {
	r := ring(f, seal.Generate("k1"), seal.Generate("k2"))
	sealed := mustSeal(f, r, "secret")
	f.Add(sealed)
	f.Add(sealed[:5])
	f.Add([]byte{})
	f.Add([]byte{1, 255})
	f.Add([]byte("\x01\x02k1"))
	f.Add([]byte("\x01\x02k20123456789abcdefghijklmnopqrstuvwxyz"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := r.Open(data, here)
		if (err == nil) != bytes.Equal(data, sealed) {
			t.Fatalf("%q: %q, %v", data, got, err)
		}
		if err != nil && (got != nil || !errors.Is(err, seal.ErrBroken) && !errors.Is(err, seal.ErrUnknownKey)) {
			t.Fatalf("%q: %q, %v", data, got, err)
		}
		if id, ok := seal.KeyID(data); r.NeedsRewrap(data) != (ok && id != "k1") {
			t.Fatalf("%q: key %q", data, id)
		}
	})
}
