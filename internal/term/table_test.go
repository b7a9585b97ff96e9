package term

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestTablesFoldWhereTheTerminalIsNarrow(t *testing.T) {
	t.Parallel()
	head := []string{"TASK", "STATE", "TENANT/OWNER", "DETAIL"}
	const detail = "the warehouse did not answer: https://warehouse.example/a/path/that/is/longer/than/a/line"
	rows := [][]string{
		{"0198f0e2-7c1e", "failed", "acme/billing-service@acme.example", detail},
		{"0198f0e2-7c1f", "completed", "acme/bob", "-"},
	}
	for _, tt := range []struct {
		width int
		want  string
	}{
		{0, `
TASK           STATE      TENANT/OWNER                       DETAIL
0198f0e2-7c1e  failed     acme/billing-service@acme.example  ` + detail + `
0198f0e2-7c1f  completed  acme/bob                           -
`}, {110, `
TASK           STATE      TENANT/OWNER                       DETAIL
0198f0e2-7c1e  failed     acme/billing-service@acme.example  the warehouse did not answer:
                                                             https://warehouse.example/a/path/that/is/longer/t
                                                             han/a/line
0198f0e2-7c1f  completed  acme/bob                           -
`}, {60, `
TASK           STATE      TENANT/OWNER
    DETAIL
0198f0e2-7c1e  failed     acme/billing-service@acme.example
    the warehouse did not answer:
    https://warehouse.example/a/path/that/is/longer/than/a/l
    ine
0198f0e2-7c1f  completed  acme/bob
`}, {44, `
TASK           STATE
    TENANT/OWNER
    DETAIL
0198f0e2-7c1e  failed
    acme/billing-service@acme.example
    the warehouse did not answer:
    https://warehouse.example/a/path/that/is
    /longer/than/a/line
0198f0e2-7c1f  completed
    acme/bob
`},
	} {
		var out strings.Builder
		if err := (&table{width: tt.width, head: head, rows: rows}).write(&out); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), out.String()); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", tt.width, diff)
		}
	}
}

func TestNarrowTablesOmitColumnsWithoutValues(t *testing.T) {
	t.Parallel()
	head := []string{"AGENT", "WORKING", "FAILED", "REASON"}
	rows := [][]string{{"echo", "-", "1", "-"}, {"script", "-", "-", "-"}}
	for _, tt := range []struct {
		width int
		rows  [][]string
		want  string
	}{
		{0, rows, "AGENT   WORKING  FAILED  REASON\necho    -        1       -\nscript  -        -       -\n"},
		{40, rows, "AGENT   WORKING  FAILED  REASON\necho    -        1       -\nscript  -        -       -\n"},
		{20, rows, "AGENT   FAILED\necho    1\nscript  -\n"},
		{18, [][]string{{"echo", "1", "-", "a b c d e f g h i j"}, {"words", "1", "-", "a"}},
			"AGENT  WORKING\n    REASON\necho   1\n    a b c d e f g\n    h i j\nwords  1\n    a\n"},
		{40, [][]string{{"echo", "1", "1", "a b c d e f g h i j k l"}, {"words", "1", "-", "a"}},
			"AGENT  WORKING  FAILED  REASON\necho   1        1       a b c d e f g h\n" +
				"                        i j k l\nwords  1        -       a\n"},
		{20, nil, "AGENT  WORKING\n    FAILED  REASON\n"},
	} {
		var out strings.Builder
		if err := (&table{width: tt.width, head: head, rows: tt.rows}).write(&out); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, out.String()); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", tt.width, diff)
		}
	}
}

func TestListsLeaveOutOptionalColumnsWhereTheTerminalIsNarrow(t *testing.T) {
	t.Parallel()
	head, optional := []string{"TASK", "STATE", "OWNER", "NONE", "UPDATED", "WORKER"}, []string{"WORKER", "OWNER"}
	rows := [][]string{
		{"0198f0e2-7c1e", "failed", "acme/alice", "-", "2026-01-02 03:04:59Z", "r1"},
		{"0198f0e2-7c1f", "completed", "-", "-", "-", "-"},
	}
	for _, tt := range []struct {
		width int
		want  string
	}{
		{74, `
TASK           STATE      OWNER       NONE  UPDATED               WORKER
0198f0e2-7c1e  failed     acme/alice  -     2026-01-02 03:04:59Z  r1
0198f0e2-7c1f  completed  -           -     -                     -
`}, {67, `
TASK           STATE      OWNER       UPDATED               WORKER
0198f0e2-7c1e  failed     acme/alice  2026-01-02 03:04:59Z  r1
0198f0e2-7c1f  completed  -           -                     -
`}, {64, `
TASK           STATE      OWNER       UPDATED            WORKER
0198f0e2-7c1e  failed     acme/alice  2026-01-02 03:04Z  r1
0198f0e2-7c1f  completed  -           -                  -
`}, {62, `
TASK           STATE      OWNER       UPDATED
0198f0e2-7c1e  failed     acme/alice  2026-01-02 03:04Z
0198f0e2-7c1f  completed  -           -
Too narrow for WORKER and seconds: see -o json.
`}, {50, `
TASK           STATE      UPDATED
0198f0e2-7c1e  failed     2026-01-02 03:04Z
0198f0e2-7c1f  completed  -
Too narrow for OWNER, WORKER and seconds: see -o
json.
`}, {40, `
TASK           STATE      OWNER
    UPDATED               WORKER
0198f0e2-7c1e  failed     acme/alice
    2026-01-02 03:04:59Z  r1
0198f0e2-7c1f  completed  -
`},
	} {
		var out strings.Builder
		list := &table{width: tt.width, head: head, optional: optional, rows: rows, brevity: true}
		if err := list.write(&out); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), out.String()); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", tt.width, diff)
		}
	}
}

// TestWrapKeepsEverything checks at every width that nothing is left out and no line is too long.
func TestWrapKeepsEverything(t *testing.T) {
	t.Parallel()
	const text = "ünï 1234567890123456789012345678901234567890 a b c " +
		"{\"new\":\"01a1f9c3-54da-74c0-a1c0-a27be48b5796\"} – end"
	letters := func(s string) string { return strings.Join(strings.Fields(s), "") }
	for width := 12; width < 130; width++ {
		got := Wrap(text, 4, width)
		if letters(got) != letters(text) {
			t.Errorf("%d columns: %q", width, got)
		}
		for i, line := range strings.Split(got, "\n") {
			n := utf8.RuneCountInString(line)
			if i == 0 {
				n += 4
			}
			if n > width {
				t.Errorf("%d columns: %q", width, line)
			}
		}
	}
}
