package console

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/term"
)

//go:embed templates
var templateFiles embed.FS

// pages are the templates of all pages, each with the layout.
type pages map[string]*template.Template

// frame is what the layout shows around a page.
type frame struct {
	viewer
	Title   string
	Version string
	URI     string
	Onward  string // where the page leads on to by itself; empty: nowhere
	Page    any
}

// onward is the path that a page leads on to.
type onward string

// Section is the first element of the page's path, which the navigation marks.
func (f *frame) Section() string {
	section, _, _ := strings.Cut(strings.TrimPrefix(f.Path, Prefix+"/"), "/")
	return section
}

// Principal reports whether the viewer is known, and may follow the navigation.
func (f *frame) Principal() bool { return f.principal.Tenant != "" }

// answerForm is what the form of an answer needs.
type answerForm struct {
	Question    *question
	Token, From string
}

func newAnswerForm(q *question, token, from string) answerForm { return answerForm{q, token, from} }

// assignForm is what the form of an assignment needs.
type assignForm struct {
	Question             *question
	Token, From, Address string // without a token there is no form
}

func newAssignForm(q *question, write bool, token, from, address string) assignForm {
	if !write {
		token = ""
	}
	return assignForm{q, token, from, address}
}

// target is what the form of an action on a task needs.
type target struct {
	ID    a2a.ID
	Token string
	Why   bool // a reason must be given: the viewer acts on the task of another
}

func newTarget(id a2a.ID, token string, why bool) target { return target{id, token, why} }

func (c *Console) parsePages() (pages, error) {
	funcs := template.FuncMap{
		"asset": func(name string) string { return c.assets.urls[name] },
		"state": stateBadge, "ago": ago, "took": term.Duration, "size": term.Size, "short": shortID,
		"count": term.Count, "clip": clip, "form": newAnswerForm, "assignment": newAssignForm, "target": newTarget,
		"level": levelBadge, "act": newServiceForm, "toward": newDestinationForm,
	}
	layout, err := template.New("layout").Funcs(funcs).ParseFS(
		templateFiles, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("read templates: %w", err)
	}
	list, err := templateFiles.ReadDir("templates")
	if err != nil {
		return nil, fmt.Errorf("read templates: %w", err)
	}
	all := make(pages)
	for _, f := range list {
		name := strings.TrimSuffix(f.Name(), path.Ext(f.Name()))
		if name == "layout" || name == "parts" {
			continue
		}
		t, err := layout.Clone()
		if err == nil {
			t, err = t.ParseFS(templateFiles, "templates/"+f.Name())
		}
		if err != nil {
			return nil, fmt.Errorf("read templates: %w", err)
		}
		all[name] = t
	}
	return all, nil
}

// render sends a page. It is complete before its first byte is sent, so that an error becomes a page of its own.
func (c *Console) render(q *request, name, title string, data any) error {
	return c.renderStatus(q, http.StatusOK, name, title, data)
}

func (c *Console) renderStatus(q *request, status int, name, title string, data any) error {
	var b bytes.Buffer
	f := frame{
		viewer: q.viewer, Title: title, Version: c.cfg.Version, Page: data,
		URI: shortPath(q.r.URL.RequestURI(), maxNext),
	}
	if to, ok := data.(onward); ok {
		f.Onward = string(to)
	}
	if err := c.pages[name].ExecuteTemplate(&b, "layout", &f); err != nil {
		return fmt.Errorf("render %s: %w", name, err)
	}
	c.send(q.w, status, bytes.NewBuffer(visible(b.Bytes())))
	return nil
}

// writeError sends an error page, with as much of the frame as is known of the viewer.
func (c *Console) writeError(w http.ResponseWriter, r *http.Request, status int, title, text string) {
	q := &request{w, r, c.stranger(r)}
	if err := c.renderStatus(q, status, "error", title, text); err != nil {
		c.cfg.Logger.ErrorContext(r.Context(), "console", "err", err)
		http.Error(w, title, status)
	}
}

// visible replaces characters that people do not see but that change what they see, wherever they are in a page:
// controls of terminals, and those that reverse text. Templates have none of them, so they come from tasks.
func visible(page []byte) []byte {
	clean := true
	for i := 0; i < len(page) && clean; i++ {
		clean = page[i] < 0x7f && (page[i] >= ' ' || page[i] == '\n' || page[i] == '\t' || page[i] == '\r')
	}
	if clean {
		return page
	}
	out := make([]byte, 0, len(page)+256)
	for i := 0; i < len(page); {
		r, n := utf8.DecodeRune(page[i:])
		if hidden(r) || r == utf8.RuneError && n == 1 {
			out = fmt.Appendf(out, "[U+%04X]", r)
		} else {
			out = append(out, page[i:i+n]...)
		}
		i += n
	}
	return out
}

func hidden(r rune) bool {
	switch {
	case r == '\n', r == '\t', r == '\r':
		return false
	case r < ' ', r >= 0x7f && r <= 0x9f: // controls
		return true
	case r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x206f: // order, and no width
		return true
	}
	return r == 0x61c || r == 0xfeff || r >= 0xe0000 && r <= 0xe007f
}

// clip shortens a text for a cell of a table.
func clip(text string) string { return term.Shorten(text, 120) }

const circle = `<circle cx="6" cy="6" r="4.25" class="line"/>`

// shapes are drawn so that a state is known without its color. Each is the inside of an SVG of 12 by 12.
var shapes = map[a2a.State]string{
	a2a.StateSubmitted:     circle,
	a2a.StateWorking:       circle + `<path d="M6 1.75a4.25 4.25 0 0 1 0 8.5z" class="fill"/>`,
	a2a.StateInputRequired: `<path d="M6 .75 11.25 6 6 11.25.75 6z" class="fill"/>`,
	a2a.StateAuthRequired: `<path d="M3.5 5.5V4a2.5 2.5 0 0 1 5 0v1.5" class="line"/>` +
		`<path d="M2 5.5h8V11H2z" class="fill"/>`,
	a2a.StateCompleted: `<path d="M1.75 6.5 4.75 9.5 10.25 3" class="line"/>`,
	a2a.StateFailed:    `<path d="M2.5 2.5l7 7M9.5 2.5l-7 7" class="line"/>`,
	a2a.StateCanceled:  `<path d="M1.5 6h9" class="line"/>`,
	a2a.StateRejected:  circle + `<path d="M3 9l6-6" class="line"/>`,
}

// stateBadge shows a state by color, shape and word.
func stateBadge(s a2a.State) template.HTML {
	//nolint:gosec // all parts are constants of this package and of a2a
	return template.HTML(`<span class="state s-` + s.String() + `">` +
		`<svg class="shape" viewBox="0 0 12 12" aria-hidden="true">` +
		shapes[s] + `</svg>` + s.String() + `</span>`)
}

// levelBadge shows how grave a finding is by color, shape and word.
func levelBadge(level string) template.HTML {
	shape, known := map[string]a2a.State{
		levelOK: a2a.StateCompleted, levelWarning: a2a.StateInputRequired, levelFault: a2a.StateFailed,
	}[level]
	if !known {
		return ""
	}
	//nolint:gosec // all parts are constants of this package
	return template.HTML(`<span class="kind l-` + level + `">` +
		`<svg class="shape" viewBox="0 0 12 12" aria-hidden="true">` + shapes[shape] + `</svg>` + level + `</span>`)
}

// ago shows a time relative to now, and the exact one on hover.
func ago(t time.Time) template.HTML {
	if t.IsZero() {
		return `<span class="none">–</span>`
	}
	exact := t.UTC().Format("2006-01-02 15:04:05.000Z")
	//nolint:gosec // a formatted time
	return template.HTML(`<time datetime="` + t.UTC().Format(time.RFC3339Nano) + `" title="` + exact + `">` +
		relative(time.Since(t)) + `</time>`)
}

// relative shows an age or, if it is negative, how long it is until then.
func relative(d time.Duration) string {
	format := "%s ago"
	if d < 0 {
		d, format = -d, "in %s"
	}
	var text string
	switch {
	case d < 5*time.Second:
		return "now"
	case d < time.Minute:
		text = fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		text = fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		text = fmt.Sprintf("%d h", int(d.Hours()))
	default:
		text = fmt.Sprintf("%d d", int(d.Hours()/24))
	}
	return fmt.Sprintf(format, text)
}

// shortID is the beginning of an id that differs between tasks of the same hour, for narrow columns.
func shortID(id a2a.ID) string { return id.String()[:13] }
