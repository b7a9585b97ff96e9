package console

import (
	"bytes"
	"errors"
	"html/template"
	"net/url"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// markdown renders texts of agents. It does not know HTML: tags are text like any other, which is shown. Images are
// named and not loaded, and links lead to other sites only.
var markdown = goldmark.New(
	goldmark.WithParser(parser.NewParser(
		parser.WithBlockParsers( // all of CommonMark but HTML
			util.Prioritized(parser.NewSetextHeadingParser(), 100),
			util.Prioritized(parser.NewThematicBreakParser(), 200),
			util.Prioritized(parser.NewListParser(), 300), util.Prioritized(parser.NewListItemParser(), 400),
			util.Prioritized(parser.NewCodeBlockParser(), 500), util.Prioritized(parser.NewATXHeadingParser(), 600),
			util.Prioritized(parser.NewFencedCodeBlockParser(), 700),
			util.Prioritized(parser.NewBlockquoteParser(), 800),
			util.Prioritized(parser.NewParagraphParser(), 1000),
		),
		parser.WithInlineParsers(
			util.Prioritized(parser.NewCodeSpanParser(), 100), util.Prioritized(parser.NewLinkParser(), 200),
			util.Prioritized(parser.NewAutoLinkParser(), 300), util.Prioritized(parser.NewEmphasisParser(), 500),
		),
		parser.WithParagraphTransformers(parser.DefaultParagraphTransformers()...),
	)),
	goldmark.WithExtensions(
		extension.Strikethrough,
		// Styles inside of a page are forbidden, so the alignment is an attribute.
		extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
	),
	goldmark.WithRendererOptions(html.WithHardWraps(), renderer.WithNodeRenderers(util.Prioritized(harmless{}, 100))),
)

// renderMarkdown renders a text. It reports false for a text without any markup, which is better shown as it is, and
// for one that would become more than the given number of bytes.
func renderMarkdown(source string, most int) (template.HTML, bool) {
	src := []byte(source)
	if isExcessive(src) {
		return "", false
	}
	doc := markdown.Parser().Parse(text.NewReader(src))
	if !marked(doc) {
		return "", false
	}
	b := bounded{most: most}
	if markdown.Renderer().Render(&b, src, doc) != nil {
		return "", false
	}
	return template.HTML(b.String()), true //nolint:gosec // the renderer escapes what it does not know
}

// bounded is a buffer that takes no more than most bytes.
type bounded struct {
	bytes.Buffer
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.most {
		return 0, errTooMuchMarkup
	}
	return b.Buffer.Write(p)
}

var errTooMuchMarkup = errors.New("too much markup")

const (
	// maxNesting is how many quotes and lists a line may begin inside each other. Each is a node of the parser, and a
	// character may begin one.
	maxNesting = 32
	// maxCells is how many cells a table may have. The parser makes those that a row lacks.
	maxCells = 10_000
)

// isExcessive reports whether a text would cost the parser many times its bytes, as no text for people does.
func isExcessive(src []byte) bool {
	lines, columns := 0, 0
	for line := range bytes.Lines(src) {
		lines++
		if len(bytes.Trim(line, "|-: \t\r\n>*+.)0123456789")) == 0 {
			columns = max(columns, bytes.Count(line, []byte("|")))
		}
		if nesting(line) > maxNesting {
			return true
		}
	}
	return columns*lines > maxCells
}

// nesting returns how many quotes and lists a line begins.
func nesting(line []byte) (n int) {
	for i, c := range line {
		switch {
		case c == ' ', c == '\t', '0' <= c && c <= '9':
		case c == '>', strings.IndexByte("-+*.)", c) >= 0 && i+1 < len(line) && line[i+1] == ' ':
			n++
		default:
			return n
		}
	}
	return n
}

// marked reports whether a document is more than paragraphs of text.
func marked(doc ast.Node) (yes bool) {
	//nolint:errcheck // the function returns none
	ast.Walk(doc, func(n ast.Node, _ bool) (ast.WalkStatus, error) {
		switch n.Kind() {
		case ast.KindDocument, ast.KindParagraph, ast.KindText, ast.KindString:
			return ast.WalkContinue, nil
		}
		yes = true
		return ast.WalkStop, nil
	})
	return yes
}

// harmless renders what could lead somewhere, and headings, which would break the outline of the page.
type harmless struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (harmless) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindLink, renderLink)
	r.Register(ast.KindAutoLink, renderAutoLink)
	r.Register(ast.KindImage, renderImage)
	r.Register(ast.KindHeading, renderHeading)
}

// outside returns the URL of a link that may be followed. Paths are not among them: they would be of this console.
func outside(destination []byte) (string, bool) {
	u, err := url.Parse(string(destination))
	if err != nil || u.User != nil {
		return "", false
	}
	switch u.Scheme {
	case "http", "https":
		return u.String(), u.Host != ""
	case "mailto":
		return u.String(), u.Opaque != ""
	}
	return "", false
}

// put writes to a buffer. An error stays in it, and Render returns it.
func put(w util.BufWriter, text string) {
	w.WriteString(text) //nolint:errcheck // see above
}

func openLink(w util.BufWriter, href string) {
	put(w, `<a rel="noopener noreferrer nofollow" href="`)
	put(w, string(util.EscapeHTML([]byte(href))))
	put(w, `">`)
}

// renderLink shows where a link leads if it cannot be followed.
func renderLink(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	n := node.(*ast.Link) //nolint:forcetypeassert // it is registered for this kind
	href, ok := outside(n.Destination)
	switch {
	case ok && entering:
		openLink(w, href)
	case ok:
		put(w, `</a>`)
	case !entering:
		put(w, ` (`)
		put(w, string(util.EscapeHTML(n.Destination)))
		put(w, `)`)
	}
	return ast.WalkContinue, nil
}

func renderAutoLink(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	n := node.(*ast.AutoLink) //nolint:forcetypeassert // it is registered for this kind
	if !entering {
		return ast.WalkContinue, nil
	}
	target := n.URL(source)
	if n.AutoLinkType == ast.AutoLinkEmail {
		target = append([]byte("mailto:"), target...)
	}
	href, ok := outside(target)
	if ok {
		openLink(w, href)
	}
	put(w, string(util.EscapeHTML(n.Label(source))))
	if ok {
		put(w, `</a>`)
	}
	return ast.WalkContinue, nil
}

// renderImage names an image, which would be loaded from elsewhere.
func renderImage(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	n := node.(*ast.Image) //nolint:forcetypeassert // it is registered for this kind
	if entering {
		put(w, `[image: `)
		return ast.WalkContinue, nil
	}
	put(w, ` `)
	put(w, string(util.EscapeHTML(n.Destination)))
	put(w, `]`)
	return ast.WalkContinue, nil
}

func renderHeading(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		put(w, `<p class="heading">`)
	} else {
		put(w, "</p>\n")
	}
	return ast.WalkContinue, nil
}
