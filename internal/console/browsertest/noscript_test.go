package browsertest

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// hover moves the pointer onto what a selector names.
func hover(selector string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		var at []float64
		err := chromedp.Evaluate(`(() => {
			const r = document.querySelector('`+selector+`').getBoundingClientRect();
			return [r.left + r.width / 2, r.top + r.height / 2];
		})()`, &at).Do(ctx)
		if err != nil {
			return err
		}
		return input.DispatchMouseEvent(input.MouseMoved, at[0], at[1]).Do(ctx)
	})
}

// withoutScript opens a browser that runs no JavaScript of pages.
func withoutScript(t *testing.T) context.Context {
	t.Helper()
	ctx := open(t)
	do(t, ctx, emulation.SetScriptExecutionDisabled(true))
	return ctx
}

func TestPagesAreReadWithoutJavaScript(t *testing.T) {
	all := paths(t, open(t), server)
	ctx := withoutScript(t)
	for name, want := range map[string][]string{
		"overview":    {"Agents", "script", "What failed in the last day"},
		"tasks":       {"State", "completed", "Reset"},
		"task-asks":   {"Refund 120 EUR?", "Dear customer", "Timeline", "Where the time went"},
		"task-failed": {"Timeline", "failed", "Retry"},
		"raw":         {"TASK_STATE_INPUT_REQUIRED"},
		"inbox":       {"Refund 120 EUR?", "Answer", "Reject it"},
		"agents":      {"script", "Attempts", "Pause"},
		"workers":     {"In flight", "Servers"},
		"webhooks":    {"There is no such webhook."},
		"schedules":   {"Schedules"},
		"audit":       {"Actor"},
		"keys":        {"API keys"},
		"doctor":      {"Finding"},
		"playground":  {"Send", "Checks of the card", "warning"},
		"played":      {"Frames of the stream", "TASK_STATE_INPUT_REQUIRED", "curl"},
		"bulk":        {"Why?"},
		"missing":     {"Not found"},
	} {
		do(t, ctx, chromedp.Navigate(server+all[name]))
		text := eval[string](t, ctx, `document.querySelector('main').textContent`)
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s does not show %q", name, w)
			}
		}
		if eval[bool](t, ctx, `[...document.querySelectorAll('button.copy, [data-refresh]')]
			.some((b) => b.checkVisibility())`) {
			t.Errorf("%s shows a button that needs JavaScript", name)
		}
	}
}

// step fills and sends a form of a page.
type step struct {
	page, under string // path of the page; the summary that unfolds the form, if there is one
	form        string // selector of the form
	fill        map[string]string
	button      string // selector in the form; empty: its main button
	want        string // selector of what the next page shows
}

func (s step) run(t *testing.T, ctx context.Context, server string) {
	t.Helper()
	do(t, ctx, chromedp.Navigate(server+s.page), chromedp.WaitReady("main"))
	if s.under != "" {
		do(t, ctx, chromedp.Click(s.under, chromedp.ByQuery))
	}
	for name, text := range s.fill {
		do(t, ctx, chromedp.SendKeys(s.form+` [name="`+name+`"]`, text, chromedp.ByQuery))
	}
	button := s.button
	if button == "" {
		button = "button.main"
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	res, err := chromedp.RunResponse(wait, chromedp.Click(s.form+" "+button, chromedp.ByQuery))
	if err != nil || res.Status != http.StatusOK {
		t.Fatalf("%s of %s: %v, %v", s.form, s.page, res, err)
	}
	do(t, ctx, chromedp.WaitVisible(s.want, chromedp.ByQuery))
}

// without names a page that has no such form.
func without(form string) string { return `main:not(:has(` + form + `))` }

// details is the summary above a form.
func details(form string) string { return `details:has(> ` + form + `) > summary` }

func TestActionsWorkWithoutJavaScript(t *testing.T) {
	why := map[string]string{"reason": "a test"}
	task := func(ops ...op) string {
		t.Helper()
		id, err := submit(ops...)
		if err != nil {
			t.Fatal(err)
		}
		return "/console/tasks/" + id
	}
	hangs, fails := task(op{"op": "status"}, op{"op": "hang"}), task(op{"op": "fail", "text": "it broke"})
	asks, asksToo := task(op{"op": "input", "text": "One?"}), task(op{"op": "input", "text": "Two?"})
	of := func(path, action string) string { return `form[action="` + path + `/` + action + `"]` }
	steps := []step{
		{hangs, details(of(hangs, "cancel")), of(hangs, "cancel"), why, ".danger", ".head .s-canceled"},
		{fails, details(of(fails, "retry")), of(fails, "retry"), why, "", ".done"},
		{asks, "", of(asks, "answer"), map[string]string{"text": "yes"}, "", ".done"},
		{"/console/inbox", "", of(asksToo, "answer"), map[string]string{"text": "yes"}, "", ".done"},
		{"/console/tasks", "", ".filter", map[string]string{"owner": "nobody"}, "", "#list .empty"},
		{"/console/tasks/bulk?action=retry&state=failed", "", of("/console/tasks", "bulk"), why, "", "#job"},
		{"/console/playground?agent=echo", "", "form.act", map[string]string{"text": "hi"}, "", "#played"},
		{"/console/audit", "", ".filter", map[string]string{"action": "task.cancel"}, "", "main tbody tr"},
		{"/console/tasks", "", of("/console", "theme"), nil, "[value=dark]", "html[data-theme=dark]"},
	}
	save, remove := of("/console/tasks", "views"), of("/console/tasks/views", "remove")
	steps = append(steps,
		step{"/console/tasks?owner=ann", details(save), save, map[string]string{"name": "Of ann"}, "",
			".tabs [aria-current]"},
		step{"/console/tasks?owner=ann", "", remove, nil, "button", "#list [data-row]"},
	)
	// What stops and starts work comes last.
	pause, resume := of("/console/agents", "pause"), of("/console/agents", "resume")
	drain, undrain := of("/console/workers", "drain"), of("/console/workers", "resume")
	steps = append(steps,
		step{"/console/agents", details(pause), pause, why, "", resume},
		step{"/console/agents", details(resume), resume, why, "", without(resume)},
		step{"/console/workers", details(drain), drain, why, "", undrain},
		step{"/console/workers", details(undrain), undrain, why, "", without(undrain)},
	)
	ctx := withoutScript(t)
	for _, s := range steps {
		s.run(t, ctx, server)
	}
}

// theDemo is a server with the demo, whose webhook was given up.
var theDemo = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "a2ad-demo-")
	if err != nil {
		return "", err
	}
	server, stop, err := start(os.Getenv("A2AD_BIN"), dir, "--demo")
	if err != nil {
		return "", err
	}
	atEnd = append(atEnd, func() { stop(); os.RemoveAll(dir) })
	return server, nil
})

// atEnd stops what several tests use.
var atEnd []func()

// demo returns the address of a server with the demo, once its webhook is dead.
func demo(t *testing.T, ctx context.Context) string {
	t.Helper()
	server, err := theDemo()
	if err != nil {
		t.Fatal(err)
	}
	do(t, ctx, chromedp.Navigate(server+"/console/"), chromedp.WaitVisible(`.tiles .bad`))
	return server
}

func TestWebhooksAreRepairedWithoutJavaScript(t *testing.T) {
	server := demo(t, open(t))
	ctx := withoutScript(t)
	form := func(path string) string { return `form[action="/console` + path + `"]` }
	why := map[string]string{"reason": "a test"}
	for _, path := range []string{"/webhooks/replay", "/destinations/replay", "/destinations/enable"} {
		step{"/console/webhooks", details(form(path)), form(path), why, "", "main h1"}.run(t, ctx, server)
		action := map[string]string{"/destinations/enable": "push.enable"}[path]
		if action == "" {
			action = "push.replay"
		}
		do(t, ctx, chromedp.Navigate(server+"/console/audit?action="+action), chromedp.WaitVisible(`main tbody tr`))
	}
}
