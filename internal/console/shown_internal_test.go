package console

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

func FuzzIndent(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `[ ]`, "{ \"a\" : [ 1 , {\"b\":{}} ], \"\\\"}\":null}\n", `"a\"b"`, `-1.5e3`, `[[[[1,2],[]]]]`,
		`"é"`, `x`,
	} {
		f.Add([]byte(seed), 40)
	}
	f.Fuzz(func(t *testing.T, v []byte, most int) {
		var want bytes.Buffer
		if json.Indent(&want, v, "", "  ") != nil || most < 0 {
			return
		}
		whole := strings.TrimRight(want.String(), " \t\r\n")
		if got, cut := indent(v, len(whole)); got != whole || cut {
			t.Errorf("%q becomes %q, cut: %v, want %q", v, got, cut, whole)
		}
		got, cut := indent(v, most)
		if len(got) > most || cut != (len(whole) > most) ||
			!strings.HasPrefix(whole, strings.TrimRight(got, "\ufffd")) {
			t.Errorf("%d bytes of %q are %q, cut: %v", most, v, got, cut)
		}
	})
}

// manyParts are small contents that would become large pages.
var manyParts = map[string]a2a.Part{
	"deep JSON": {Kind: a2a.PartData, Data: a2a.Raw(
		strings.Repeat("[", 58) + strings.Repeat("1,", 500_000) + "1" + strings.Repeat("]", 58))},
	"quotes in quotes":  {Kind: a2a.PartText, Text: strings.Repeat(">", maxText) + " x"},
	"quotes with gaps":  {Kind: a2a.PartText, Text: strings.Repeat("> ", maxText/2) + "x"},
	"lists in lists":    {Kind: a2a.PartText, Text: strings.Repeat("- ", maxText/2) + "x"},
	"numbered in lists": {Kind: a2a.PartText, Text: strings.Repeat("1. ", maxText/3) + "x"},
	"many lists":        {Kind: a2a.PartText, Text: strings.Repeat("* x\n\n1) y\n\n", maxText/11)},
	"many lines":        {Kind: a2a.PartText, Text: strings.Repeat("a\n", maxText/2) + "**b**"},
	"emphasis":          {Kind: a2a.PartText, Text: strings.Repeat("*a **b ", maxText/7)},
	"links": {Kind: a2a.PartText, Text: strings.Repeat("[", maxText/2) +
		strings.Repeat("](http://e.example)", 800)},
	"a table": {Kind: a2a.PartText, Text: strings.Repeat("|a", 200) + "|\n" + strings.Repeat("|-", 200) + "|\n" +
		strings.Repeat("|\n", 10_000)},
}

// A page has a bound, whatever it shows, and needs not much more memory than that.
func TestPagesAreBounded(t *testing.T) { //nolint:paralleltest // it measures memory
	for name, part := range manyParts {
		var s shown
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		bytes := 0
		var kept []shownPart
		for range 200 {
			p := s.agentPart(&part, "")
			bytes += len(p.Text) + len(p.HTML) + len(p.JSON)
			kept = append(kept, p)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if bytes > maxPage || bytes != s.bytes {
			t.Errorf("%s: a page has %d bytes, and %d were counted, want at most %d", name, bytes, s.bytes, maxPage)
		}
		if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 4*maxPage {
			t.Errorf("%s: a page of %d bytes holds %d", name, bytes, held)
		}
		if made := after.TotalAlloc - before.TotalAlloc; made > 600<<20 {
			t.Errorf("%s: a page of %d bytes needed %d MiB in all", name, bytes, made>>20)
		}
		if last := kept[len(kept)-1]; !last.Cut {
			t.Errorf("%s: the last of 200 parts is shown whole", name)
		}
		runtime.KeepAlive(kept)
	}
}

func TestFramesSayThatTheyAreCut(t *testing.T) {
	t.Parallel()
	var s shown
	if got := s.frame([]byte(`{"a":1}`)); got != "{\n  \"a\": 1\n}" {
		t.Errorf("a short frame is shown as %q", got)
	}
	got := s.frame([]byte(`["` + strings.Repeat("x", 2*maxFrame) + `"]`))
	if len(got) > maxFrame+100 || !strings.HasSuffix(got, "only the beginning)") {
		t.Errorf("a long frame has %d bytes and ends with %q", len(got), got[len(got)-40:])
	}
}
