package a2ad

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	maxResult   = 1 << 20  // bytes of one recorded value
	maxDepth    = 56       // levels of nesting of a value; an event has at most 64, and contains the value
	maxInput    = 16 << 10 // characters of an input that is sent itself; of a larger one, only the hash is sent
	maxReason   = 4000     // characters of the reason of a failure
	replacement = "\uFFFD"
)

// compact returns a value as JSON. The text is the same in all libraries, because it is hashed: no spaces, and each
// character that JSON need not escape is itself.
func compact(value any) (data json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil { // in a method of the value
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, err
	}
	return unescape(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// mustCompact is compact for what always has a JSON form: events, whose free values are JSON already.
func mustCompact(value any) json.RawMessage {
	data, err := compact(value)
	if err != nil {
		panic(fmt.Sprintf("a2ad: %T: %v", value, err))
	}
	return data
}

// unescape replaces the escapes of U+2028 and U+2029, which encoding/json always writes, by the characters.
func unescape(data []byte) []byte {
	if !bytes.Contains(data, []byte(`\u202`)) {
		return data
	}
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' || i+1 == len(data) {
			out = append(out, data[i])
			continue
		}
		switch rest := data[i:]; {
		case bytes.HasPrefix(rest, []byte(`\u2028`)), bytes.HasPrefix(rest, []byte(`\u2029`)):
			out = utf8.AppendRune(out, '\u2020'+rune(rest[5]-'0'))
			i += 5
		default:
			out = append(out, rest[0], rest[1])
			i++
		}
	}
	return out
}

// encode returns a value as JSON that can be recorded. what names it in the error.
func encode(value any, what string) (json.RawMessage, error) {
	data, err := compact(value)
	switch {
	case err != nil:
		return nil, misuse("%s cannot be recorded as JSON: %v", what, err)
	case len(data) > maxResult:
		return nil, misuse("%s is %d bytes of JSON; at most %d can be recorded", what, len(data), maxResult)
	case depth(data) > maxDepth:
		return nil, misuse("%s is nested deeper than %d levels", what, maxDepth)
	}
	return data, nil
}

// depth returns the depth of JSON, or 0 if it has too few brackets to be too deep.
func depth(data []byte) int {
	if bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) <= maxDepth {
		return 0
	}
	now, most := 0, 0
	quoted, escaped := false, false
	for _, c := range data {
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case c == '[', c == '{':
			now++
			most = max(most, now)
		case c == ']', c == '}':
			now--
		}
	}
	return most
}

// digest returns the SHA-256 of JSON, as the server computes it. Without JSON, it is empty.
func digest(data []byte) string {
	if data == nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// inOrder returns JSON with the members of its objects in order. What is hashed is the same in all libraries, so a
// worker in another language can continue a task.
func inOrder(data json.RawMessage) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return data
	}
	return mustCompact(v)
}

// fingerprint returns what to send as the input of a step or a wait, so that another one is detected.
func fingerprint(data json.RawMessage) json.RawMessage {
	if depth(data) <= maxDepth {
		if data = inOrder(data); utf8.RuneCount(data) <= maxInput {
			return data
		}
	}
	return mustCompact(map[string]string{"sha256": digest(data)})
}

// inputs returns the input to send for the arguments of a step; nil if it has none.
func inputs(args []any) json.RawMessage {
	if len(args) == 0 {
		return nil
	}
	list := make([]json.RawMessage, len(args))
	for i, a := range args {
		list[i] = argument(a)
	}
	return fingerprint(mustCompact(struct {
		Args []json.RawMessage `json:"args"`
	}{list}))
}

// argument returns what stands for an argument: its JSON, or the name of its type if it has none.
func argument(value any) json.RawMessage {
	if file, ok := value.([]byte); ok {
		sum := sha256.Sum256(file)
		return mustCompact(map[string]string{"sha256": hex.EncodeToString(sum[:])})
	}
	if data, err := compact(value); err == nil {
		return data
	}
	return mustCompact(map[string]string{"type": fmt.Sprintf("%T", value)})
}

// valid returns a text in which U+FFFD replaces what is not valid UTF-8.
func valid(text string) string { return strings.ToValidUTF8(text, replacement) }

// tail is the incomplete last character of streamed text, with the name of its artifact.
type tail struct{ name, rest string }

// next returns the text that follows, without its incomplete last character.
func (t *tail) next(name, text string) string {
	text = t.rest + text
	whole := len(text)
	for i := whole - 1; i >= max(whole-utf8.UTFMax+1, 0); i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRuneInString(text[i:]) {
				whole = i
			}
			break
		}
	}
	t.name, t.rest = name, text[whole:]
	return valid(text[:whole])
}

// end returns what stands for the incomplete last character, if there is one, and forgets it.
func (t *tail) end() string {
	rest := t.rest
	t.rest = ""
	return valid(rest)
}

// clean returns the first characters of a text, with those replaced that cannot be stored.
func clean(text string, most int) string {
	text = strings.ReplaceAll(valid(text), "\x00", replacement)
	n := 0
	for i := range text {
		if n++; n > most {
			return text[:i]
		}
	}
	return text
}
