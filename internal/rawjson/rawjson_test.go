package rawjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/rawjson"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   string
		want rawjson.Fault
	}{
		{`{}`, 0}, {` [1, -0.5e+3, "a\n\u00e9\ud83d\ude00", true, false, null] `, 0},
		{`{"a":{"a":1},"b":[{"a":2}]}`, 0}, {`"` + "\U0010FFFF" + `"`, 0}, {`1e131071`, 0}, {`"\u0000"`, 0},
		{``, rawjson.FaultSyntax}, {` `, rawjson.FaultSyntax}, {"\ufeff{}", rawjson.FaultSyntax},
		{`{} {}`, rawjson.FaultSyntax}, {`{}x`, rawjson.FaultSyntax}, {`[1,]`, rawjson.FaultSyntax},
		{`{"a":1,}`, rawjson.FaultSyntax}, {`{a:1}`, rawjson.FaultSyntax}, {`{'a':1}`, rawjson.FaultSyntax},
		{`NaN`, rawjson.FaultSyntax}, {`Infinity`, rawjson.FaultSyntax}, {`01`, rawjson.FaultSyntax},
		{`1.`, rawjson.FaultSyntax},
		{`.5`, rawjson.FaultSyntax}, {`+1`, rawjson.FaultSyntax}, {`1e`, rawjson.FaultSyntax},
		{`-`, rawjson.FaultSyntax},
		{`tru`, rawjson.FaultSyntax}, {"\"a\nb\"", rawjson.FaultSyntax}, {"\"a\x00b\"", rawjson.FaultSyntax},
		{`"\x"`, rawjson.FaultSyntax}, {`"\u12"`, rawjson.FaultSyntax}, {`"\`, rawjson.FaultSyntax},
		{`"a`, rawjson.FaultSyntax},
		{`"\ud800"`, rawjson.FaultSyntax}, {`"\udc00"`, rawjson.FaultSyntax}, {`"\ud800\ud800"`, rawjson.FaultSyntax},
		{"\"\xff\"", rawjson.FaultSyntax}, {"\"\xc0\xaf\"", rawjson.FaultSyntax},
		{"\"\xed\xa0\x80\"", rawjson.FaultSyntax},
		{`{"a":1,"a":2}`, rawjson.FaultDuplicate}, {`{"a":1,"\u0061":2}`, rawjson.FaultDuplicate},
		{`[{"x":{"":1,"":2}}]`, rawjson.FaultDuplicate},
		{strings.Repeat("[", 65) + strings.Repeat("]", 65), rawjson.FaultDepth},
		{strings.Repeat(`{"a":`, 100_000), rawjson.FaultDepth},
		{strings.Repeat("[", 64) + strings.Repeat("]", 64), 0},
	} {
		err := rawjson.Check([]byte(tc.in), 64)
		var e *rawjson.Error
		if errors.As(err, &e) != (tc.want != 0) || e != nil && e.Fault != tc.want {
			t.Errorf("Check(%.60q) = %v, want fault %d", tc.in, err, tc.want)
		}
	}
}

func TestCheckManyKeys(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, `"k%d":0,`, i)
	}
	if err := rawjson.Check([]byte("{"+b.String()+`"last":1}`), 4); err != nil {
		t.Errorf("distinct keys: %v", err)
	}
	if err := rawjson.Check([]byte("{"+b.String()+`"k9000":1}`), 4); err == nil {
		t.Error("a duplicate among 10,000 keys passed")
	}
}

// The checker has two ways to remember keys, for few and for many. Both must remember every key.
func TestCheckRemembersEveryKey(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 40; n++ {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k%d":{"k%d":0},`, i, i)
		}
		for i := range n {
			doc := fmt.Sprintf(`{%s"k%d":0}`, b.String(), i)
			var e *rawjson.Error
			if err := rawjson.Check([]byte(doc), 4); !errors.As(err, &e) || e.Fault != rawjson.FaultDuplicate {
				t.Fatalf("key %d again after %d others: %v", i, n, err)
			}
		}
		if err := rawjson.Check([]byte(fmt.Sprintf(`{%s"last":0}`, b.String())), 4); err != nil {
			t.Fatalf("%d distinct keys: %v", n+1, err)
		}
	}
}

func TestWalk(t *testing.T) {
	t.Parallel()
	doc := []byte(` { "a\u0062" : [1, {"x":"]}\\"}, "\"" ] , "n":null,"t":true, "i":1.0, "big":12345678901234567890 } `)
	if err := rawjson.Check(doc, 8); err != nil {
		t.Fatal(err)
	}
	doc = rawjson.Trim(doc)
	var got []string
	for k, v := range rawjson.Members(doc) {
		got = append(got, string(k)+"="+string(v))
		for e := range rawjson.Elements(v) {
			got = append(got, string(e))
		}
	}
	want := []string{`ab=[1, {"x":"]}\\"}, "\"" ]`, `1`, `{"x":"]}\\"}`, `"\""`, `n=null`, `t=true`, `i=1.0`,
		`big=12345678901234567890`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("walk:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n, ok := rawjson.Int(rawjson.Get(doc, "i")); n != 1 || !ok {
		t.Errorf("Int(1.0) = %d, %v", n, ok)
	}
	if _, ok := rawjson.Int(rawjson.Get(doc, "big")); ok {
		t.Error("Int took a number of 20 digits")
	}
	if rawjson.Get(doc, "absent") != nil {
		t.Error("Get of an absent key is not nil")
	}
}

// FuzzCheck compares the checker with encoding/json. A document that it accepts must be valid there too, walks
// must not panic, and strings must survive a round trip.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{`{"a":[1,2,{"b":"\ud83d\ude00\\"}]}`, `"\\\""`, `[[[]]]`, `{"a":1,"a":2}`, `-0.0e-0`,
		"\"\xff\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if rawjson.Check(data, 32) != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("Check accepted %q", data)
		}
		walk(t, rawjson.Trim(data))
	})
}

func walk(t *testing.T, v []byte) {
	switch rawjson.KindOf(v) {
	case rawjson.KindObject:
		for _, m := range rawjson.Members(v) {
			walk(t, m)
		}
	case rawjson.KindArray:
		for e := range rawjson.Elements(v) {
			walk(t, e)
		}
	case rawjson.KindString:
		var want string
		if err := json.Unmarshal(v, &want); err != nil {
			t.Fatalf("unmarshal %q: %v", v, err)
		}
		got, ok := rawjson.String(v)
		if !ok || got != want {
			t.Fatalf("String(%q) = %q, want %q", v, got, want)
		}
		again := rawjson.AppendString(nil, got)
		if err := rawjson.Check(again, 1); err != nil {
			t.Fatalf("AppendString(%q) = %q: %v", got, again, err)
		}
		if back, _ := rawjson.String(again); back != got {
			t.Fatalf("round trip of %q gave %q", got, back)
		}
	default:
		if !json.Valid(v) || !bytes.Equal(v, rawjson.Trim(v)) {
			t.Fatalf("walked into %q", v)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	doc := []byte(`{"jsonrpc":"2.0","id":1,"method":"message/send",` +
		`"params":{"message":{"kind":"message","messageId":"m","role":"user",` +
		`"parts":[{"kind":"text","text":"` + strings.Repeat("hello ", 100) + `"}]}}}`)
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if err := rawjson.Check(doc, 64); err != nil {
			b.Fatal(err)
		}
	}
}

func TestWithout(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ obj, key, want string }{
		{`{"a":1}`, "a", `{}`}, {`{"a":1}`, "b", `{"a":1}`}, {`{}`, "a", `{}`}, {`[1]`, "a", `[1]`},
		{`{"a":1,"b":2}`, "a", `{"b":2}`}, {`{"a":1, "b":2}`, "a", `{ "b":2}`}, {`{"a":1 , "b":2 }`, "b", `{"a":1  }`},
		{`{ "a" : {"b":[1,"}"]} , "b":2, "c":3}`, "b", `{ "a" : {"b":[1,"}"]} ,  "c":3}`}, {`{"\u0061":1}`, "a", `{}`},
		{`{ "a":1 }`, "a", `{  }`},
	} {
		got := rawjson.Without([]byte(tc.obj), tc.key)
		if string(got) != tc.want {
			t.Errorf("Without(%s, %s) = %s, want %s", tc.obj, tc.key, got, tc.want)
		}
		if err := rawjson.Check(got, 8); err != nil {
			t.Errorf("Without(%s, %s): %v", tc.obj, tc.key, err)
		}
	}
	for v, want := range map[string]bool{``: true, `{}`: true, "{ \n}": true, `{"a":1}`: false, `[]`: false,
		`1`: false} {
		if got := rawjson.Empty([]byte(v)); got != want {
			t.Errorf("Empty(%s) = %v", v, got)
		}
	}
}

func TestScalars(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]string{
		`""`: "", `"a"`: "a", `"\u00e9\ud83d\ude00x"`: "é😀x",
		`"\uABCD\uabcd"`: "\uabcd\uabcd", `"a\\b\/\"c"`: `a\b/"c`,
		`"\b\f\n\r\t"`: "\b\f\n\r\t",
	} {
		if got, ok := rawjson.String([]byte(v)); got != want || !ok {
			t.Errorf("String(%s) = %q, %v", v, got, ok)
		}
	}
	for _, v := range []string{``, `null`, `1`, `{}`, `[]`, `true`} {
		if _, ok := rawjson.String([]byte(v)); ok {
			t.Errorf("String accepted %s", v)
		}
	}
	for v, want := range map[string]int64{`0`: 0, `-0`: 0, `7`: 7, `1.0`: 1, `1e2`: 100,
		`-9223372036854775808`: -1 << 63, `9007199254740993`: 9007199254740993} {
		if n, ok := rawjson.Int([]byte(v)); n != want || !ok {
			t.Errorf("Int(%s) = %d, %v", v, n, ok)
		}
	}
	for _, v := range []string{`1.5`, `1e400`, `1e30`, `9223372036854775808`, `"1"`, `null`, `true`,
		strings.Repeat("1", 10_000)} {
		if n, ok := rawjson.Int([]byte(v)); ok {
			t.Errorf("Int(%.40s) = %d", v, n)
		}
	}
	for v, want := range map[string][2]bool{`true`: {true, true}, `false`: {false, true}, `null`: {}, `"true"`: {},
		`1`: {}} {
		if b, ok := rawjson.Bool([]byte(v)); b != want[0] || ok != want[1] {
			t.Errorf("Bool(%s) = %v, %v", v, b, ok)
		}
	}
}

// TestPlain compares the search of eight bytes at once with a search of single bytes.
func TestPlain(t *testing.T) {
	t.Parallel()
	for b := range 256 {
		for at := range 20 {
			for _, fill := range []byte{'a', 0x20, 0x7f, 0x80, 0xff} {
				s := bytes.Repeat([]byte{fill}, 20)
				s[at] = byte(b)
				escaped := b < 0x20 || b == '"' || b == '\\'
				if got := len(rawjson.AppendString(nil, string(s))) > 22; got != escaped {
					t.Fatalf("byte %#x at %d in %#x: escaped %v", b, at, fill, got)
				}
			}
		}
	}
}

func BenchmarkAppendString(b *testing.B) {
	s := strings.Repeat("a line of some sixty characters, then it breaks; and so on…\n", 600)
	b.SetBytes(int64(len(s)))
	dst := rawjson.AppendString(nil, s)
	for b.Loop() {
		dst = rawjson.AppendString(dst[:0], s)
	}
}
