package console

import (
	"regexp"
	"strings"
	"testing"
)

func TestMarkdownIsRendered(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"**bold** and *italic*":           "<strong>bold</strong> and <em>italic</em>",
		"# Title":                         `<p class="heading">Title</p>`,
		"- one\n- two":                    "<li>one</li>",
		"| a | b |\n|---|--:|\n| 1 | 2 |": `<td align="right">2</td>`,
		"```go\nif a < b {}\n```":         `<code class="language-go">if a &lt; b {}`,
		"~~old~~":                         "<del>old</del>",
		"one  \ntwo **x**":                "<br>",
		"[a2ad](https://a2ad.example)":    `<a rel="noopener noreferrer nofollow" href="https://a2ad.example">a2ad</a>`,
		"<ann@example.org>":               `href="mailto:ann@example.org"`,
	} {
		got, ok := renderMarkdown(source, maxText)
		if !ok || !strings.Contains(string(got), want) {
			t.Errorf("%q becomes %q, want %q in it", source, got, want)
		}
	}
}

func TestTextWithoutMarkupIsNoMarkdown(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"", "hello", "two\nlines\n\nand a paragraph", "a < b && c > d", "snake_case_name"} {
		if got, ok := renderMarkdown(source, maxText); ok {
			t.Errorf("%q becomes %q", source, got)
		}
	}
}

// hostileMarkdown tries to become more than text and links.
var hostileMarkdown = []string{
	"<script>alert(1)</script>", "**x** <img src=x onerror=alert(1)>", "# <svg onload=alert(1)>",
	"[x](javascript:alert(1))", "[x](JaVaScRiPt:alert(1))", "[x](java\nscript:alert(1))",
	"[x](&#106;avascript:alert(1))",
	"[x](data:text/html;base64,PHNjcmlwdD4=)", "[x](vbscript:x)", "[x](file:///etc/passwd)", "[x](/console/tasks)",
	"[x](//evil.example)", "[x](https://user:pass@evil.example)", "<javascript:alert(1)>", "<data:text/html,x>",
	"![x](https://evil.example/pixel.png)", `![x](x" onerror="alert(1))`,
	`[x](https://e.example "onmouseover=alert(1)")`,
	`[x](https://e.example/"onclick="alert(1))`, "```\" onclick=\"alert(1)\nx\n```",
	"[x][y]\n\n[y]: javascript:alert(1)",
	"| <script> |\n|---|\n| <b onclick=x> |", "&lt;script&gt;*x*", "<!-- --> **x**",
	"**x**\n<style>*{}</style>", "<a\nhref='x'>*y*</a>",
	"**\u202ex\u202e**", "{#id onclick=alert(1)}\n# x {onclick=alert(1)}", "[x](\x00javascript:alert(1))",
	"[x](https://e.example/\x00\" onclick=alert(1))", "[\"><script>](https://e.example)",
}

var (
	anyTag   = regexp.MustCompile(`<[^>]*>`)
	knownTag = regexp.MustCompile(`^</?(p|em|strong|del|ul|ol|li|blockquote|pre|code|hr|br|` +
		`table|thead|tbody|tr|th|td|a)` +
		`(| class="heading"| class="language-[^"<>]*"| align="(left|right|center)"| start="\d+"` +
		`| rel="noopener noreferrer nofollow" href="(https?://|mailto:)[^"<>]*")>$`)
)

// checkHarmless reports tags and attributes that the renderer does not make.
func checkHarmless(t *testing.T, source string) {
	t.Helper()
	got, ok := renderMarkdown(source, maxText)
	if !ok {
		return // it is shown as text
	}
	for _, tag := range anyTag.FindAllString(string(got), -1) {
		if !knownTag.MatchString(tag) {
			t.Errorf("%q has the tag %q: %s", source, tag, got)
		}
	}
	if rest := anyTag.ReplaceAllString(string(got), ""); strings.ContainsAny(rest, "<>") {
		t.Errorf("%q has half a tag: %s", source, got)
	}
}

func TestMarkdownIsHarmless(t *testing.T) {
	t.Parallel()
	for _, source := range hostileMarkdown {
		checkHarmless(t, source)
	}
}

func FuzzMarkdown(f *testing.F) {
	for _, source := range hostileMarkdown {
		f.Add(source)
	}
	f.Fuzz(checkHarmless)
}
