package a2a

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"slices"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// content is what is known of the parts of an artifact or a message, without the parts. Servers cut the same text
// differently in their streams and in their tasks, so consecutive texts count as one text.
type content struct {
	bare  bool     // ignore what describes a part: servers do not repeat it everywhere
	parts []digest // of each part
	spans []span
	older []digest // what sum was after each part
}

// span is a text, perhaps of several parts, or one other part.
type span struct {
	before digest    // sum without this span and later ones
	kind   digest    // of a text: what its parts have in common; otherwise of the part
	text   hash.Hash // nil: this is not a text
	size   int       // of the text
	head   string    // the first bytes of the text, so that most comparisons need no hash
}

const maxHead = 16

type digest [16]byte

func contentOf(parts []a2a.Part, bare bool) *content {
	c := &content{bare: bare}
	c.add(parts)
	return c
}

// add adds parts at the end.
func (c *content) add(parts []a2a.Part) {
	for i := range parts {
		p := &parts[i]
		c.parts = append(c.parts, digestOf(p, c.bare, true))
		if p.Kind != a2a.PartText {
			c.spans = append(c.spans, span{before: c.sum(), kind: c.parts[len(c.parts)-1]})
		} else if p.Text != "" {
			c.span(digestOf(p, c.bare, false)).add(p.Text)
		}
		c.older = append(c.older, c.sum())
	}
}

// span returns the span of a text at the end.
func (c *content) span(kind digest) *span {
	last := len(c.spans) - 1
	if last < 0 || c.spans[last].text == nil || c.spans[last].kind != kind {
		c.spans = append(c.spans, span{before: c.sum(), kind: kind, text: sha256.New()})
		last++
	}
	return &c.spans[last]
}

func (s *span) add(text string) {
	s.text.Write([]byte(text))
	s.size += len(text)
	if n := maxHead - len(s.head); n > 0 {
		s.head += text[:min(n, len(text))]
	}
}

// sum returns the same digest for equal contents.
func (c *content) sum() (d digest) {
	if len(c.spans) == 0 {
		return d
	}
	s := &c.spans[len(c.spans)-1]
	h := sha256.New()
	h.Write(s.before[:])
	h.Write(s.kind[:])
	if s.text != nil {
		h.Write(s.text.Sum(nil))
	}
	copy(d[:], h.Sum(nil))
	return d
}

// rest returns what follows this content in parts. ok is false if parts do not begin with it.
func (c *content) rest(parts []a2a.Part) (rest []a2a.Part, ok bool) {
	for i := range c.spans {
		s := &c.spans[i]
		if s.text != nil {
			if parts, ok = s.cut(parts, c.bare); !ok {
				return nil, false
			}
			continue
		}
		parts = afterEmpty(parts)
		if len(parts) == 0 || digestOf(&parts[0], c.bare, true) != s.kind {
			return nil, false
		}
		parts = parts[1:]
	}
	return afterEmpty(parts), true
}

// cut removes the text from the beginning of parts.
func (s *span) cut(parts []a2a.Part, bare bool) (rest []a2a.Part, ok bool) {
	h, head := sha256.New(), s.head
	for left := s.size; left > 0; {
		parts = afterEmpty(parts)
		if len(parts) == 0 || parts[0].Kind != a2a.PartText || digestOf(&parts[0], bare, false) != s.kind {
			return nil, false
		}
		text := parts[0].Text
		n := min(left, len(text))
		k := min(len(head), n)
		if text[:k] != head[:k] {
			return nil, false
		}
		h.Write([]byte(text[:n]))
		head, left = head[k:], left-n
		if n < len(text) {
			parts = slices.Clone(parts)
			parts[0].Text = text[n:]
			break
		}
		parts = parts[1:]
	}
	return parts, bytes.Equal(h.Sum(nil), s.text.Sum(nil))
}

// has reports whether the parts of another content are the last ones of these, or were all of these at some time.
func (c *content) has(o *content) bool {
	n := len(c.parts) - len(o.parts)
	return len(o.spans) == 0 || n >= 0 && slices.Equal(c.parts[n:], o.parts) || slices.Contains(c.older, o.sum())
}

func afterEmpty(parts []a2a.Part) []a2a.Part {
	for len(parts) > 0 && parts[0].Kind == a2a.PartText && parts[0].Text == "" {
		parts = parts[1:]
	}
	return parts
}

// digestOf returns the digest of a part, or of what it has besides its text.
func digestOf(p *a2a.Part, bare, text bool) (d digest) {
	h := sha256.New()
	write(h, []byte{byte(p.Kind)})
	if text {
		write(h, []byte(p.Text))
	}
	canonical(h, p.Data)
	if !bare {
		write(h, []byte(p.MediaType))
		write(h, []byte(p.Filename))
		if !rawjson.Empty(p.Metadata) {
			canonical(h, p.Metadata)
		}
	}
	copy(d[:], h.Sum(nil))
	return d
}

func write(h hash.Hash, b []byte) {
	h.Write(append(strconv.AppendInt(nil, int64(len(b)), 10), ':'))
	h.Write(b)
}

// canonical writes a value in a form that does not depend on the order of members, white space and escapes. A server
// may write these differently each time.
func canonical(h hash.Hash, v []byte) {
	switch rawjson.KindOf(v) {
	case rawjson.KindObject:
		type pair struct{ k, v []byte }
		var pairs []pair
		for k, v := range rawjson.Members(v) {
			pairs = append(pairs, pair{k, v})
		}
		slices.SortFunc(pairs, func(a, b pair) int { return bytes.Compare(a.k, b.k) })
		h.Write([]byte{'{'})
		for _, p := range pairs {
			write(h, p.k)
			canonical(h, p.v)
		}
		h.Write([]byte{'}'})
	case rawjson.KindArray:
		h.Write([]byte{'['})
		for e := range rawjson.Elements(v) {
			canonical(h, e)
		}
		h.Write([]byte{']'})
	case rawjson.KindString:
		s, _ := rawjson.String(v)
		h.Write([]byte{'"'})
		write(h, []byte(s))
	default:
		write(h, v)
	}
}

// Limits of one event, below the worker's.
const (
	maxEventParts = 500
	maxEventBytes = 1 << 20
	maxPartText   = 1 << 19
)

// join makes one text of consecutive texts.
func join(parts []a2a.Part) (joined []a2a.Part) {
	for begin := 0; begin < len(parts); {
		p, end := parts[begin], begin+1
		if p.Kind == a2a.PartText {
			kind := digestOf(&p, false, false)
			for end < len(parts) && parts[end].Kind == a2a.PartText && digestOf(&parts[end], false, false) == kind {
				end++
			}
			var text strings.Builder
			for _, piece := range parts[begin:end] {
				text.WriteString(piece.Text)
			}
			p.Text = text.String()
		}
		joined, begin = append(joined, p), end
	}
	return joined
}

// fit cuts texts that are too large for a part. Readers join the texts of an artifact or a message.
func fit(parts []a2a.Part) []a2a.Part {
	large := func(p a2a.Part) bool { return p.Kind == a2a.PartText && len(p.Text) > maxPartText }
	if !slices.ContainsFunc(parts, large) {
		return parts
	}
	var out []a2a.Part
	for _, p := range parts {
		for large(p) {
			n := len(strings.ToValidUTF8(p.Text[:maxPartText], "")) // a character may be cut at the end
			piece := p
			piece.Text, p.Text = p.Text[:n], p.Text[n:]
			out = append(out, piece)
		}
		out = append(out, p)
	}
	return out
}
