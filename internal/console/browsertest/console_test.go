package browsertest

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// paths returns the paths of all pages, by name.
func paths(t *testing.T, ctx context.Context, server string) map[string]string {
	t.Helper()
	first := func(query string) string {
		do(t, ctx, chromedp.Navigate(server+"/console/tasks?"+query), chromedp.WaitVisible(`[data-row]`))
		return eval[string](t, ctx, `document.querySelector('[data-row]').getAttribute('href')`)
	}
	asks := first("state=input-required")
	return map[string]string{
		"overview": "/console/", "tasks": "/console/tasks", "inbox": "/console/inbox", "agents": "/console/agents",
		"webhooks": "/console/webhooks", "schedules": "/console/schedules", "audit": "/console/audit",
		"keys": "/console/keys", "missing": "/console/missing", "task-failed": first("state=failed"), "task-asks": asks,
		"raw": asks + "/raw", "workers": "/console/workers", "doctor": "/console/doctor",
		"playground": "/console/playground?agent=script", "bulk": "/console/tasks/bulk?action=cancel",
		"jobs": "/console/jobs", "played": strings.Replace(asks, "/tasks/", "/playground/", 1),
	}
}

// theme sets the colors that the browser asks for, and the width of the page in pixels.
func theme(name string, width int64) chromedp.Tasks {
	return chromedp.Tasks{
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme",
			Value: name}}),
		chromedp.EmulateViewport(width, 900),
	}
}

func TestNothingOfATaskRuns(t *testing.T) {
	ctx := open(t)
	for name, path := range paths(t, ctx, server) {
		do(t, ctx, chromedp.Navigate(server+path), chromedp.WaitReady("main"))
		if eval[bool](t, ctx,
			`'ran' in window || document.querySelectorAll('main script, main img, main iframe').length > 0`) {
			t.Errorf("%s: text of a task became a part of the page", name)
		}
		if n := eval[int](t, ctx, `document.querySelectorAll('script').length`); n != 1 {
			t.Errorf("%s has %d scripts, want 1", name, n)
		}
	}
}

// Every page is looked at in both themes and in narrow and wide windows.
func TestPagesAreAccessibleAndFit(t *testing.T) {
	axe, err := os.ReadFile(os.Getenv("AXE"))
	if err != nil {
		t.Fatalf("AXE is the path of axe.min.js: %v", err)
	}
	ctx := open(t)
	for name, path := range paths(t, ctx, server) {
		do(t, ctx, chromedp.Navigate(server+path), chromedp.WaitReady("main"), chromedp.Evaluate(string(axe), nil))
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{360, 768, 1440} {
				do(t, ctx, theme(scheme, width))
				if wide := eval[int64](t, ctx, `document.documentElement.scrollWidth`); wide > width {
					t.Errorf("%s is %d wide in a window of %d", name, wide, width)
				}
				if width == 768 {
					continue
				}
				var faults []string
				do(t, ctx, chromedp.Evaluate(`axe.run().then(r => r.violations.flatMap(v =>
					v.nodes.map(n => v.id + ": " + n.html.slice(0, 200) + " " + (n.any[0]?.message ?? ''))))`,
					&faults, await))
				for _, f := range faults {
					t.Errorf("%s, %s, %d: %s", name, scheme, width, f)
				}
			}
		}
	}
}

func TestOpenPagesFollowChanges(t *testing.T) {
	ctx := open(t)
	do(t, ctx, chromedp.Navigate(server+"/console/tasks"), chromedp.WaitVisible(`#list [data-row]`))
	id, err := submit(op{"op": "input", "text": "Go on?"})
	if err != nil {
		t.Fatal(err)
	}
	do(t, ctx, chromedp.WaitVisible(`#t-`+id+` .s-input-required`, chromedp.ByQuery)) // without a reload
	do(t, ctx, chromedp.Navigate(server+"/console/tasks/"+id), chromedp.WaitVisible(`.asks textarea`))
	do(t, ctx, chromedp.SendKeys(`.asks textarea`, "yes"), chromedp.Click(`.asks button.main`),
		chromedp.WaitVisible(`.done`))
	do(t, ctx, chromedp.WaitVisible(`.head .s-completed`))
}

func TestThemeIsKept(t *testing.T) {
	ctx := open(t)
	do(t, ctx, theme("light", 1440), chromedp.Navigate(server+"/console/tasks"), chromedp.WaitReady("main"))
	light := eval[string](t, ctx, `getComputedStyle(document.body.parentElement).backgroundColor`)
	do(t, ctx, chromedp.Click(`button[name=theme]`), chromedp.WaitVisible(`html[data-theme=dark] main`))
	do(t, ctx, chromedp.Navigate(server+"/console/inbox"), chromedp.WaitReady("main"))
	if dark := eval[string](t, ctx, `getComputedStyle(document.body.parentElement).backgroundColor`); dark == light {
		t.Errorf("the next page is %s again", dark)
	}
}

func TestManyTasksAreCanceledAtOnce(t *testing.T) {
	ctx := open(t)
	for range 2 {
		if _, err := submit(op{"op": "auth", "text": "Sign in to the archive."}); err != nil {
			t.Fatal(err)
		}
	}
	do(t, ctx, chromedp.Navigate(server+"/console/tasks?state=auth-required"), chromedp.Click(`.bulk a`),
		chromedp.WaitVisible(`#reason`), chromedp.SendKeys(`#reason`, "a test"), chromedp.Click(`button.danger`),
		chromedp.WaitVisible(`.done`))
	if text := eval[string](t, ctx, `document.querySelector('.done').textContent`); !strings.HasPrefix(text, "3 tasks") {
		t.Errorf("the page says %q, want 3 tasks: one more was there before", text)
	}
}
