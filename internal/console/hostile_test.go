package console_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/console"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/jobs"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// payloads are texts that must not become anything else.
var payloads = storetest.Hostile

// hostile returns a task with every payload in every field of tasks that a page shows.
func hostile(r *rig) a2a.ID {
	r.T.Helper()
	first := storetest.Submission("x")
	first.Message.Parts, first.ContextID = nil, `ctx"><script>alert(1)</script>`
	var output []a2a.Event
	for i, p := range payloads {
		p := strings.ReplaceAll(p, "\x00", "")
		parts := []a2a.Part{
			{Kind: a2a.PartText, Text: p}, {Kind: a2a.PartURL, Text: p, Filename: p, MediaType: p},
			{Kind: a2a.PartFile, Text: "PHNjcmlwdD4=", Filename: p, MediaType: p}, {Kind: a2a.PartData,
				Data: quoted(p)},
		}
		first.Message.Parts = append(first.Message.Parts, parts...)
		output = append(output, &a2a.ArtifactUpdate{Artifact: a2a.Artifact{
			ID: p + string(rune('a'+i)), Name: p, Description: p, Parts: parts,
		}}, storetest.Status(a2a.StateWorking, p+" "))
	}
	id := r.Submit(first).Task
	lease := r.ClaimTask(id)
	r.Append(lease, output...)
	r.Append(lease, storetest.Status(a2a.StateInputRequired, strings.Join(payloads[:12], " ")))
	return id
}

// hostileService has every payload in what the other pages show: what operators and agent files say, what workers call
// themselves, and what the doctor finds.
func hostileService(r *rig) func(*console.Config) {
	r.T.Helper()
	card := a2a.Card{Description: strings.Join(payloads, " "), Version: payloads[0]}
	var found []console.Finding
	for i, p := range payloads {
		p := strings.ReplaceAll(p, "\x00", strconv.Itoa(i))
		ctx := access.ActingBy(r.T.Context(), access.By{Actor: p, Reason: p})
		card.Skills = append(card.Skills, a2a.Skill{ID: p, Name: p, Description: p})
		found = append(found, console.Finding{Check: p, Level: "note", Text: p, Fix: p})
		k, err := auth.NewKey("test", nil)
		if err != nil {
			r.T.Fatal(err)
		}
		key := access.Key{ID: k.ID(), Tenant: "acme", Owner: p, Name: p, Scopes: []string{"tasks:read"}}
		if _, err := r.Access.CreateKey(ctx, key, k.SecretHash(), 0); err != nil {
			r.T.Fatal(err)
		}
		if _, err := r.Jobs.Start(ctx, jobs.NewJob{Action: jobs.Cancel, Filter: jobs.Filter{Text: p}}); err != nil {
			r.T.Fatal(err)
		}
		view := []rune(p)
		if err := r.Access.SaveView(ctx, string(view[:min(len(view), 60)]), "state=failed"); err != nil {
			r.T.Fatal(err)
		}
		if _, _, err := r.Tasks.BeginStop(ctx, tasks.StopWorker, p, false); err != nil {
			r.T.Fatal(err)
		}
	}
	return func(c *console.Config) {
		c.Agents = func() []*a2a.Agent {
			return []*a2a.Agent{{Name: storetest.Agent, Card: card, Executor: payloads[0]}}
		}
		c.Card = func(string) (a2a.Card, bool) { return card, true }
		c.Doctor = func(context.Context) []console.Finding { return found }
	}
}

func quoted(s string) a2a.Raw {
	out := []byte{'"'}
	for _, r := range s {
		if r < ' ' || r == '"' || r == '\\' {
			out = append(out, `\u00`...)
			out = append(out, "0123456789abcdef"[r>>4], "0123456789abcdef"[r&15])
			continue
		}
		out = append(out, string(r)...)
	}
	return append(out, '"')
}

// tags are the elements and attributes that templates use. A page has no others, whatever its tasks say.
var (
	tag       = regexp.MustCompile(`<([a-zA-Z!/][^\s>]*)`)
	attribute = regexp.MustCompile(`(?i)\son[a-z]+\s*=|\sstyle\s*=|srcdoc|href="(javascript|data|vbscript):`)
	known     = regexp.MustCompile(`^(!doctype|/?(html|head|meta|title|link|script|body|a|header|svg|path|` +
		`circle|rect|span|nav|div|form|input|button|main|h1|h2|h3|p|` +
		`section|dl|dt|dd|time|details|summary|label|textarea|pre|article|table|` +
		`thead|tbody|tr|th|td|` +
		`ul|li|b|select|option|fieldset|legend|dialog|kbd|code|` +
		`em|strong|del|ol|hr|br|blockquote))$`)
)

// refresh is an element that leads a browser to another page.
var refresh = regexp.MustCompile(`(?i)<meta[^>]*http-equiv[^>]*>`)

func TestTextIsNeverMarkup(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := hostile(r)
	b := r.serve(open, hostileService(r))
	for _, path := range []string{"/tasks", "/tasks/" + id.String(), "/tasks/" + id.String() + "/raw", "/inbox",
		"/", "/audit", "/playground/" + id.String(), "/playground?agent=" + storetest.Agent,
		"/tasks/bulk?action=cancel",
		"/workers", "/agents", "/keys", "/jobs", "/doctor"} {
		body := b.page("/console" + path)
		for _, m := range tag.FindAllStringSubmatch(body, -1) {
			if !known.MatchString(m[1]) {
				t.Errorf("%s has the element %q", path, m[0])
			}
		}
		if n := strings.Count(body, "<script"); n != 1 {
			t.Errorf("%s has %d scripts, want its own alone", path, n)
		}
		if m := refresh.FindString(body); m != "" {
			t.Errorf("%s has %s", path, m)
		}
		inTags := regexp.MustCompile(`<[a-zA-Z][^>]*>`).FindAllString(body, -1)
		for _, element := range inTags {
			unquoted := regexp.MustCompile(`"[^"]*"`).ReplaceAllString(element, `""`)
			if attribute.MatchString(unquoted) || attribute.MatchString(element) && strings.Contains(element,
				`href="j`) {
				t.Errorf("%s has %s", path, element)
			}
		}
		for _, c := range "\x1b\u202e\u2066\u2069\u200b\u009b\x07" {
			if strings.ContainsRune(body, c) {
				t.Errorf("%s has the character U+%04X", path, c)
			}
		}
		if strings.Contains(path, id.String()) && !strings.Contains(body, "[U+202E]") {
			t.Errorf("%s does not show what it replaced", path)
		}
	}
}
