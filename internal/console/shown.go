package console

import (
	"bytes"
	"encoding/json"
	"html/template"
	"strings"
)

const (
	// maxText is how many bytes of a text, or of JSON, a page shows.
	maxText = 32 << 10
	// maxFrame is how many bytes of an event or of a task a page shows as it is sent.
	maxFrame = 256 << 10
	// maxPage is how many bytes of content a page shows. JSON that is indented, and texts with their markup, may have
	// many times the bytes that are stored.
	maxPage = 2 << 20
)

// shown counts the bytes of content that a page shows. The zero value is for a page that shows nothing yet.
type shown struct{ bytes int }

// room returns how much of the next piece can be shown: no more than most.
func (s *shown) room(most int) int { return max(min(most, maxPage-s.bytes), 0) }

// text returns the beginning of a text, and whether something is left out.
func (s *shown) text(text string, most int) (beginning string, cut bool) {
	if most = s.room(most); len(text) > most {
		text, cut = strings.ToValidUTF8(strings.Clone(text[:most]), ""), true
	}
	s.bytes += len(text)
	return text, cut
}

// json indents JSON. What is none is returned as it is.
func (s *shown) json(v []byte, most int) (text string, cut bool) {
	if !json.Valid(v) {
		return s.text(string(v), most)
	}
	text, cut = indent(v, s.room(most))
	s.bytes += len(text)
	return text, cut
}

// frame indents an event or a task, and says so if it is only the beginning.
func (s *shown) frame(v []byte) string {
	text, cut := s.json(v, maxFrame)
	if cut {
		text += "\n… (this is only the beginning)"
	}
	return text
}

// markup renders the markup of a text of an agent. It returns nothing for a text without any, and for one whose markup
// is too much for a page: these are better shown as they are.
func (s *shown) markup(text string) template.HTML {
	rendered, ok := renderMarkdown(text, s.room(4*maxText))
	if !ok {
		return ""
	}
	s.bytes += len(rendered)
	return rendered
}

// indent returns at most the given number of bytes of JSON with a member or element on each line, and whether something
// is left out. It makes no more than it returns, however deep the JSON is.
func indent(v []byte, most int) (text string, cut bool) {
	var b bytes.Buffer
	depth := 0
	line := func() {
		b.WriteByte('\n')
		for i := 0; i < depth && b.Len() <= most; i++ {
			b.WriteString("  ")
		}
	}
	for i := 0; i < len(v) && b.Len() <= most; i++ {
		switch c := v[i]; c {
		case '"':
			end := i + 1
			for ; v[end] != '"'; end++ {
				if v[end] == '\\' {
					end++
				}
			}
			b.Write(v[i:min(end+1, i+most+1)])
			i = end
		case '{', '[':
			b.WriteByte(c)
			if next := bytes.TrimLeft(v[i+1:], " \t\r\n"); next[0] == '}' || next[0] == ']' {
				b.WriteByte(next[0])
				i = len(v) - len(next)
				continue
			}
			depth++
			line()
		case '}', ']':
			depth--
			line()
			b.WriteByte(c)
		case ',':
			b.WriteByte(c)
			line()
		case ':':
			b.WriteString(": ")
		case ' ', '\t', '\r', '\n':
		default:
			b.WriteByte(c)
		}
	}
	if b.Len() > most {
		return strings.ToValidUTF8(string(b.Bytes()[:most]), ""), true
	}
	return b.String(), false
}
