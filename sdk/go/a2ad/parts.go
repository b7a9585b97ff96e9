package a2ad

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

const (
	maxFile       = 768 << 10 // bytes of a file in a part; in base64, it has 1 MiB, as a part may have
	maxPartsBytes = 3 << 20   // of one message or artifact; a request has at most 4 MiB
	maxFilename   = 4096
)

// Part is one part of a message or an artifact. Exactly one of Text, Data, Raw and URL is set. In a text, U+FFFD
// replaces what is not valid UTF-8.
type Part struct {
	Text      *string         `json:"text,omitempty"`
	Raw       []byte          `json:"raw,omitzero"` // the bytes of a file, at most 768 KiB
	URL       string          `json:"url,omitempty"`
	Data      json.RawMessage `json:"data,omitzero"`
	MediaType string          `json:"mediaType,omitempty"`
	Filename  string          `json:"filename,omitempty"`
	Metadata  map[string]any  `json:"metadata,omitempty"`
}

// Text returns a text part.
func Text(s string) Part { return Part{Text: &s} }

// JSON returns a data part. If the value has no JSON form, the call that gets the part returns a [UsageError].
func JSON(value any) Part {
	data, err := compact(value)
	if err != nil {
		data = json.RawMessage{} // which is not JSON
	}
	return Part{Data: data}
}

// Message is a message of the client or of an agent. If your agent sends one, only its parts count.
type Message struct {
	ID       string         `json:"messageId,omitempty"`
	Role     string         `json:"role,omitempty"` // ROLE_USER or ROLE_AGENT
	Parts    []Part         `json:"parts"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

// Text returns the text parts, one a line.
func (m *Message) Text() string { return strings.Join(m.texts(), "\n") }

func (m *Message) texts() (texts []string) {
	for _, p := range m.Parts {
		if p.Text != nil {
			texts = append(texts, *p.Text)
		}
	}
	return texts
}

// Data decodes the first data part into v. Without one it does nothing.
func (m *Message) Data(v any) error { return dataOf(m.Parts, v) }

func dataOf(parts []Part, v any) error {
	for _, p := range parts {
		if p.Data != nil {
			return json.Unmarshal(p.Data, v)
		}
	}
	return nil
}

// Artifact is an artifact of a task.
type Artifact struct {
	ID    string `json:"artifactId"`
	Parts []Part `json:"parts"`
	Name  string `json:"name,omitempty"`
}

// Text returns the text parts, joined without a separator: they are chunks of a stream.
func (a *Artifact) Text() string {
	var b strings.Builder
	for _, p := range a.Parts {
		if p.Text != nil {
			b.WriteString(*p.Text)
		}
	}
	return b.String()
}

// partsOf returns the parts of a message that the agent gives in one of several forms.
func partsOf(value any, what string) ([]Part, error) {
	switch v := value.(type) {
	case error:
		return nil, misuse("%s is an error: return it as the error, or its text: %.200q", what, v.Error())
	case []byte:
		return checkParts([]Part{{Raw: append([]byte{}, v...)}}, what)
	case Part:
		return checkParts([]Part{v}, what)
	case []Part:
		return checkParts(v, what)
	case Message:
		return checkParts(v.Parts, what)
	case *Message:
		if v != nil {
			return checkParts(v.Parts, what)
		}
	}
	if v := reflect.ValueOf(value); v.Kind() == reflect.String {
		return checkParts([]Part{Text(v.String())}, what)
	}
	data, err := encode(value, what)
	if err != nil {
		return nil, err
	}
	return checkParts([]Part{{Data: data}}, what)
}

// checkParts returns the parts, whose data is compact JSON. It refuses what the server would refuse.
func checkParts(parts []Part, what string) ([]Part, error) {
	if len(parts) == 0 || len(parts) > maxParts {
		return nil, misuse("%s must have 1 to %d parts, not %d", what, maxParts, len(parts))
	}
	total := 0
	checked := make([]Part, len(parts))
	for i, p := range parts {
		name := fmt.Sprintf("part %d of %s", i+1, what)
		size, err := p.check(name)
		if err != nil {
			return nil, err
		}
		total += size
		checked[i] = p
	}
	if total > maxPartsBytes {
		return nil, misuse("the parts of %s have %d bytes; at most %d can be sent", what, total, maxPartsBytes)
	}
	return checked, nil
}

// check makes the data of a part compact, and returns the bytes of its JSON.
func (p *Part) check(what string) (int, error) {
	if n := p.contents(); n != 1 {
		return 0, misuse("%s must have one of Text, Data, Raw and URL; it has %d", what, n)
	}
	if len(p.Raw) > maxFile {
		return 0, misuse("%s: the file has %d bytes; at most %d can be sent. Store it elsewhere and send a link",
			what, len(p.Raw), maxFile)
	}
	content := len(p.URL) + base64.StdEncoding.EncodedLen(len(p.Raw))
	if p.Data != nil {
		data, err := compact(p.Data)
		if err != nil || len(p.Data) == 0 {
			return 0, misuse("%s has data that has no JSON form", what)
		}
		if depth(data) > maxDepth {
			return 0, misuse("%s is nested deeper than %d levels", what, maxDepth)
		}
		p.Data, content = data, len(data)
	}
	if p.Text != nil {
		text := valid(*p.Text)
		p.Text, content = &text, len(text)
		if err := checkText(text, what, maxPartsBytes); err != nil {
			return 0, err
		}
	}
	if len(p.Metadata) > 0 {
		metadata, err := compact(p.Metadata)
		if err != nil {
			return 0, misuse("%s: the metadata cannot be recorded as JSON: %v", what, err)
		}
		content += len(metadata)
	}
	if content > maxText {
		return 0, misuse("%s has %d bytes; at most %d can be sent", what, content, maxText)
	}
	return len(mustCompact(p)), p.checkNames(what)
}

func (p *Part) contents() (n int) {
	for _, has := range []bool{p.Text != nil, p.Data != nil, p.Raw != nil, p.URL != ""} {
		if has {
			n++
		}
	}
	return n
}

func (p *Part) checkNames(what string) error {
	if err := checkText(p.URL, what+": the URL", maxText); err != nil {
		return err
	}
	if err := checkText(p.MediaType, what+": the media type", maxID); err != nil {
		return err
	}
	return checkText(p.Filename, what+": the file name", maxFilename)
}
