package browsertest

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// newKey makes an API key of an operator on a server that requires sign-in.
func newKey(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command(os.Getenv("A2AD_BIN"), "apikey", "create", "--data-dir", filepath.Join(dir, "data"),
		"--tenant", "ops", "--owner", "ann", "--scopes", "operator:read,operator:write,tasks:read,tasks:write",
		"-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var key struct{ Key string }
	if err := json.Unmarshal(out, &key); err != nil || key.Key == "" {
		t.Fatalf("the new key is %s: %v", out, err)
	}
	return key.Key
}

func TestAnswerInOneTabIsSeenInTheOther(t *testing.T) {
	one := open(t)
	two := tab(t, one)
	id, err := submit(op{"op": "input", "text": "Which of the two?"}, op{"op": "complete"})
	if err != nil {
		t.Fatal(err)
	}
	question := `#q-` + id
	do(t, one, page.BringToFront(), chromedp.Navigate(server+"/console/inbox"),
		chromedp.WaitVisible(question, chromedp.ByQuery))
	do(t, two, page.BringToFront(), chromedp.Navigate(server+"/console/inbox"),
		chromedp.WaitVisible(question+` textarea`, chromedp.ByQuery),
		chromedp.SendKeys(question+` textarea`, "the first", chromedp.ByQuery),
		chromedp.Click(question+` button.main`, chromedp.ByQuery), chromedp.WaitVisible(`.done`))
	do(t, one, page.BringToFront())
	until(t, one, `!document.querySelector('`+question+`')`) // without a reload
}

// A sign-out in one tab ends what the other shows: it must not go on showing tasks, and leads to the sign-in and back.
func TestSignOutInOneTabEndsTheOther(t *testing.T) {
	dir := t.TempDir()
	server, stop, err := start(os.Getenv("A2AD_BIN"), dir, "--auth", "required")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	key := newKey(t, dir)
	one := open(t)
	two := tab(t, one)
	signIn := chromedp.Tasks{chromedp.WaitVisible(`#key`), chromedp.SendKeys(`#key`, key),
		chromedp.Click(`button.main`), chromedp.WaitVisible(`#list`)}
	do(t, one, chromedp.Navigate(server+"/console/tasks?state=failed"), signIn)
	do(t, two, chromedp.Navigate(server+"/console/workers"), chromedp.WaitVisible(`#workers`))
	do(t, two, chromedp.Click(`form[action="/console/sign-out"] button`), chromedp.WaitVisible(`#key`))
	// A tab that nobody sees has no connection. It learns of the sign-out when it is seen again.
	do(t, one, page.BringToFront(), signIn)
	if at := eval[string](t, one, `location.pathname + location.search`); at != "/console/tasks?state=failed" {
		t.Errorf("after the sign-in the page is %s", at)
	}
}

// Somebody who writes for long stays signed in, and loses nothing if the page itself needs a new sign-in by then.
func TestPageThatSomebodyWritesInIsNotLoadedAgain(t *testing.T) {
	ctx := open(t)
	const record = `const every = setInterval;
		window.setInterval = (f, ms) => { if (ms >= 600000) window.tenMinutes = f; return every(f, ms); };
		window.fetch = async (url) => { window.asked = String(url); return { type: 'opaqueredirect' }; };`
	do(t, ctx, chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(record).Do(ctx)
		return err
	}), chromedp.Navigate(server+"/console/keys/new"), chromedp.WaitVisible(`input[name=owner]`),
		chromedp.SendKeys(`input[name=owner]`, "carl"), chromedp.Evaluate(`tenMinutes()`, nil))
	if asked := eval[string](t, ctx, `window.asked`); asked != "/console/sign-in/again" {
		t.Errorf("the page has asked for %q", asked)
	}
	do(t, ctx, chromedp.Evaluate(`document.activeElement.blur(), delete window.asked`, nil), chromedp.KeyEvent("r"))
	if eval[bool](t, ctx, `'asked' in window`) {
		t.Error("a page without live regions reads itself again")
	}
	if owner := eval[string](t, ctx, `document.querySelector('input[name=owner]').value`); owner != "carl" {
		t.Errorf("what was written has become %q", owner)
	}
}

// The page says that the server is away, tries again, and shows what it has missed.
func TestLivePageSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	bin := os.Getenv("A2AD_BIN")
	server, stop, err := start(bin, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { stop() }()
	ctx := open(t)
	do(t, ctx, network.Enable(), chromedp.Navigate(server+"/console/tasks"), chromedp.WaitVisible(`#list .empty`))
	stop()
	do(t, ctx, chromedp.WaitVisible(`#notice`))
	// The page must not connect before there is something that it has missed.
	do(t, ctx, network.SetBlockedURLs([]string{"*/console/live*", "*/console/tasks"}))
	if stop, err = startAt(bin, dir, server[len("http://"):]); err != nil {
		t.Fatal(err)
	}
	id, err := submitTo(server, op{"op": "complete"})
	if err != nil {
		t.Fatal(err)
	}
	do(t, ctx, network.SetBlockedURLs(nil), chromedp.WaitVisible(`#t-`+id, chromedp.ByQuery),
		chromedp.WaitNotVisible(`#notice`))
	// It is live again.
	if id, err = submitTo(server, op{"op": "complete"}); err != nil {
		t.Fatal(err)
	}
	do(t, ctx, chromedp.WaitVisible(`#t-`+id, chromedp.ByQuery))
}
