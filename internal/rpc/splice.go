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

// This file writes large answers in pieces. The codec writes the answer with a mark in place of each
// large value, and the values are put in while the answer is on its way: it is never there whole.

// Sizes of what is written in pieces.
const (
	spliceFrom  = 128 << 10 // answers from this size on are written in pieces
	spliceValue = 4 << 10   // values from this size on are left out at first
	spliceChunk = 64 << 10  // of one piece
)

// splice is an answer without its large values.
type splice struct {
	mark   []byte
	values []splicedValue // in the order of their marks' numbers
	whole  int            // bytes of large values that had to stay
	files  bool           // the codec writes files as they are
}

const markDigits = 8

// splicedValue is a value that the short form of an answer leaves out.
type splicedValue struct {
	part   *a2a.Part
	before int // bytes of the short form in front of the mark that stand for the value too
	after  int // the same after the mark
}

// How much of the short form stands for data. Text stands in quotes of its own, which stay.
const (
	markString = `"`    // around the mark of data that is no object
	markOpen   = `{"`   // in front of the mark of an object
	markClose  = `":0}` // after the mark of an object
)

// newSplice returns a splice for answers of a codec. A mark is nothing that a client could have sent.
func newSplice(codec wire.Codec) *splice {
	form := codec.Form()
	return &splice{mark: []byte(rand.Text()), files: form != wire.FormV03Proto && form != wire.FormV03Parts}
}

// leaveOut returns the mark of a value, between what stands around it in the short form.
func (s *splice) leaveOut(p *a2a.Part, before, after string) string {
	n := strconv.Itoa(len(s.values))
	s.values = append(s.values, splicedValue{p, len(before), len(after)})
	return before + string(s.mark) + "00000000"[len(n):] + n + after
}

// task returns t with marks in place of its large values. t stays as it is.
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

// pieces yields the answer whose short form is given, with the values in their places.
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
			if err != nil || n >= len(s.values) { // no mark of ours has such a number
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

// value yields a value as it stands in the answer.
func value(p *a2a.Part, yield func([]byte) bool) bool {
	if p.Kind == a2a.PartData {
		return yield(p.Data)
	}
	var buf []byte
	for text := p.Text; len(text) > 0; {
		n := min(spliceChunk, len(text)) // it may cut a character: what is escaped are single bytes
		buf = rawjson.AppendString(buf[:0], text[:n])
		if !yield(buf[1 : len(buf)-1]) {
			return false
		}
		text = text[n:]
	}
	return true
}
