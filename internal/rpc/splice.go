package rpc

import (
	"bytes"
	"crypto/rand"
	"iter"
	"slices"
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
)

// This file writes large answers in pieces. The codec writes a short form of the answer, with a
// mark for each large value. The values are put in while the answer is sent, so it is never in
// memory as a whole.

// Sizes for writing in pieces.
const (
	spliceFrom  = 128 << 10 // answers of at least this size are written in pieces
	spliceValue = 4 << 10   // values of at least this size are replaced by marks
	spliceChunk = 64 << 10  // size of one piece
)

// splice is an answer without its large values.
type splice struct {
	mark   []byte
	values []splicedValue // in the order of their marks
	whole  int            // bytes of large values that have no mark
	files  bool           // the codec writes files unchanged
}

const markDigits = 8

// splicedValue is a value that the short form of an answer leaves out.
type splicedValue struct {
	part   *a2a.Part
	before int // bytes before the mark that the value replaces
	after  int // bytes after the mark that the value replaces
}

// Text around the marks of data, which the value replaces too. Text parts keep their quotes.
const (
	markString = `"`    // around the mark of data that is no object
	markOpen   = `{"`   // in front of the mark of an object
	markClose  = `":0}` // after the mark of an object
)

// newSplice returns a splice for answers of a codec. A mark is random, so no client can have sent
// it.
func newSplice(codec wire.Codec) *splice {
	form := codec.Form()
	return &splice{mark: []byte(rand.Text()), files: form != wire.FormV03Proto && form != wire.FormV03Parts}
}

// leaveOut returns the mark of a value, with before and after around it.
func (s *splice) leaveOut(p *a2a.Part, before, after string) string {
	n := strconv.Itoa(len(s.values))
	s.values = append(s.values, splicedValue{p, len(before), len(after)})
	return before + string(s.mark) + "00000000"[len(n):] + n + after
}

// task returns a copy of t with marks for its large values.
func (s *splice) task(t *a2a.Task) *a2a.Task {
	short := *t
	short.History = slices.Clone(t.History)
	for i := range short.History {
		short.History[i].Parts = s.parts(t.History[i].Parts)
	}
	short.Artifacts = slices.Clone(t.Artifacts)
	for i := range short.Artifacts {
		short.Artifacts[i].Parts = s.parts(t.Artifacts[i].Parts)
	}
	if m := t.Status.Message; m != nil {
		said := *m
		said.Parts = s.parts(m.Parts)
		short.Status.Message = &said
	}
	return &short
}

func (s *splice) parts(parts []a2a.Part) []a2a.Part {
	short := parts
	for i := range parts {
		p := &parts[i]
		if len(p.Text)+len(p.Data) < spliceValue {
			continue
		}
		if p.Kind == a2a.PartFile && !s.files {
			s.whole += len(p.Text) / 3 * 4
			continue
		}
		if &short[0] == &parts[0] {
			short = slices.Clone(parts)
		}
		switch {
		case p.Kind != a2a.PartData:
			short[i].Text = s.leaveOut(p, "", "")
		case rawjson.KindOf(p.Data) == rawjson.KindObject:
			short[i].Data = a2a.Raw(s.leaveOut(p, markOpen, markClose))
		default:
			short[i].Data = a2a.Raw(s.leaveOut(p, markString, markString))
		}
	}
	return short
}

// pieces yields the answer with the given short form, with the values in place of the marks.
func (s *splice) pieces(short []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for {
			i := bytes.Index(short, s.mark)
			if i < 0 {
				yield(short)
				return
			}
			end := i + len(s.mark) + markDigits
			n, err := strconv.Atoi(string(short[end-markDigits : end]))
			if err != nil || n >= len(s.values) { // no mark has such a number
				panic("rpc: a mark without a value")
			}
			v := s.values[n]
			if !yield(short[:i-v.before]) || !value(v.part, yield) {
				return
			}
			short = short[end+v.after:]
		}
	}
}

// value yields a value as it appears in the answer.
func value(p *a2a.Part, yield func([]byte) bool) bool {
	if p.Kind == a2a.PartData {
		return yield(p.Data)
	}
	var buf []byte
	for text := p.Text; len(text) > 0; {
		n := min(spliceChunk, len(text)) // this may split a character: only single bytes are escaped
		buf = rawjson.AppendString(buf[:0], text[:n])
		if !yield(buf[1 : len(buf)-1]) {
			return false
		}
		text = text[n:]
	}
	return true
}
