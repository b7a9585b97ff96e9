package a2a

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
)

// recut cuts the texts of parts at other places.
func recut(t *rapid.T, parts []a2a.Part) (cut []a2a.Part) {
	for _, p := range join(parts) {
		for p.Kind == a2a.PartText && len(p.Text) > 0 {
			n := rapid.IntRange(0, len(p.Text)).Draw(t, "bytes of the piece")
			piece := p
			piece.Text, p.Text = p.Text[:n], p.Text[n:]
			cut = append(cut, piece)
		}
		cut = append(cut, p)
	}
	return cut
}

func TestContentDoesNotDependOnCuts(t *testing.T) {
	t.Parallel()
	part := rapid.OneOf(
		rapid.Map(rapid.StringN(0, 20, 40), func(s string) a2a.Part { return a2a.Part{Kind: a2a.PartText, Text: s} }),
		rapid.Map(rapid.StringN(0, 3, 6), func(s string) a2a.Part {
			return a2a.Part{Kind: a2a.PartText, Text: s, MediaType: "text/markdown"}
		}),
		rapid.Map(rapid.SampledFrom([]string{"1", "2", `{"a":1}`}), func(s string) a2a.Part {
			return a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(s)}
		}),
	)
	rapid.Check(t, func(t *rapid.T) {
		head, tail := rapid.SliceOf(part).Draw(t, "head"), rapid.SliceOf(part).Draw(t, "tail")
		all := slices.Concat(head, tail)
		known := contentOf(recut(t, head), false)
		rest, ok := known.rest(recut(t, all))
		if !ok {
			t.Fatal("the whole does not begin with its head")
		}
		known.add(rest)
		if whole := contentOf(recut(t, all), false); known.sum() != whole.sum() || !known.has(whole) {
			t.Fatal("the head and the rest are not the whole")
		}
		if !known.has(contentOf(recut(t, head), false)) && len(head) > 0 && len(contentOf(head, false).spans) > 0 &&
			len(contentOf(tail, false).spans) > 0 {
			t.Fatal("the head was not once the whole")
		}
		if _, ok := known.rest(recut(t, head)); ok != (contentOf(head, false).sum() == known.sum()) {
			t.Fatal("the head begins with the whole")
		}
	})
}
