package auth

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func newKey(t testing.TB) Key {
	t.Helper()
	key, err := NewKey("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// goldenKey is not a real key. Its checksum was computed with zlib, independently of this package.
const goldenKey = "a2ad_live_0123456789AB_abcdefghijklmnopqrstuvwxyz012345_de0319fd"

var keyForm = regexp.MustCompile(`^a2ad_test_[0-9A-Za-z]{12}_[0-9A-Za-z]{32}_[0-9a-f]{8}$`)

func TestNewKeyParses(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	if !keyForm.MatchString(key.Reveal()) {
		t.Errorf("key has another form: %q", key.Reveal())
	}
	id, hash, err := ParseKey(key.Reveal())
	if err != nil || id != key.ID() || hash != key.SecretHash() {
		t.Errorf("ParseKey = %q, %x, %v, want %q, %x", id, hash, err, key.ID(), key.SecretHash())
	}
	if secret := strings.Split(key.Reveal(), "_")[3]; sha256.Sum256([]byte(secret)) != hash {
		t.Error("the hash is not the SHA-256 of the secret")
	}
	if newKey(t).Reveal() == key.Reveal() {
		t.Error("two keys are equal")
	}
}

// Users have keys, and scanners know their form, so the form must never change.
func TestKeyFormIsFrozen(t *testing.T) {
	t.Parallel()
	key, err := NewKey("live", bytes.NewReader(bytes.Repeat([]byte{0, 61, 255, 62, 100}, 100)))
	if err != nil {
		t.Fatal(err)
	}
	const want = "a2ad_live_0z0c0z0c0z0c_0z0c0z0c0z0c0z0c0z0c0z0c0z0c0z0c_"
	if got := key.Reveal(); !strings.HasPrefix(got, want) {
		t.Errorf("key = %q, want %q…", got, want)
	}
	if _, _, err := ParseKey(goldenKey); err != nil {
		t.Errorf("ParseKey of the golden key: %v", err)
	}
}

func TestNewKeyRefusesBadInput(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"", "Live", "a_b", "prod env", strings.Repeat("x", 17), "ü"} {
		if _, err := NewKey(env, nil); err == nil {
			t.Errorf("environment %q was accepted", env)
		}
	}
	if _, err := NewKey("test", iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("NewKey = %v, want the error of the source", err)
	}
}

func TestParseKeyRefusesEveryTypo(t *testing.T) {
	t.Parallel()
	key := newKey(t).Reveal()
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(key)-1).Draw(t, "index")
		c := rapid.Byte().Draw(t, "byte")
		if c == key[i] {
			return
		}
		typo := key[:i] + string([]byte{c}) + key[i+1:]
		if id, _, err := ParseKey(typo); !errors.Is(err, ErrMalformedKey) || id != "" {
			t.Fatalf("ParseKey(%q) = %q, %v", typo, id, err)
		}
	})
	for _, s := range []string{
		"", "a2ad_", "____", key + "0", key[1:], key[:len(key)-1], " " + key, strings.ToUpper(key),
		strings.Replace(key, "_test_", "_live_", 1), strings.Repeat(key, 1000),
	} {
		if _, _, err := ParseKey(s); !errors.Is(err, ErrMalformedKey) {
			t.Errorf("ParseKey(%.80q) = %v, want ErrMalformedKey", s, err)
		}
	}
}

func TestKeyNeverShowsItsSecret(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	secret := strings.Split(key.Reveal(), "_")[3]
	var shown bytes.Buffer
	hidden := struct{ key Key }{key} // fmt does not call methods of what it cannot reach
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
		fmt.Fprintf(&shown, verb+"\n", key)
		fmt.Fprintf(&shown, verb+"\n", &key)
		fmt.Fprintf(&shown, verb+"\n", hidden)
	}
	fmt.Fprintln(&shown, key.String())
	for _, v := range []any{key, &key, map[string]Key{"k": key}, struct{ K Key }{key}} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		shown.Write(text)
	}
	log := slog.New(slog.NewJSONHandler(&shown, nil))
	log.Info("made key", "key", key, "in", struct{ K Key }{key})
	slog.New(slog.NewTextHandler(&shown, nil)).Info("made key", "key", key, "hidden", hidden)
	if s := shown.String(); strings.Contains(s, secret) || strings.Contains(s, fmt.Sprintf("%x", secret)) {
		t.Errorf("the secret %q shows in:\n%s", secret, s)
	}
	if (Key{}).Reveal() != "" {
		t.Error("the zero Key reveals something")
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add(goldenKey)
	f.Add(newKey(f).Reveal())
	f.Add("a2ad_live_000000000000_00000000000000000000000000000000_00000000")
	f.Add("a2ad____")
	f.Fuzz(func(t *testing.T, s string) {
		id, hash, err := ParseKey(s)
		if err != nil {
			if id != "" || hash != [sha256.Size]byte{} || !errors.Is(err, ErrMalformedKey) {
				t.Fatalf("ParseKey(%q) = %q, %x, %v", s, id, hash, err)
			}
			return
		}
		parts := strings.Split(s, "_")
		if len(s) > maxKeyLen || len(parts) != 5 || parts[2] != id || sha256.Sum256([]byte(parts[3])) != hash {
			t.Fatalf("ParseKey(%q) = %q, %x", s, id, hash)
		}
	})
}
