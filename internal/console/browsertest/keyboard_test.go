package browsertest

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// focused reports what is wrong with the focus, as a reader of the page sees it: nothing has it, it has no outline, or
// it is outside of the window.
const focused = `(() => {
	const e = document.activeElement, r = e.getBoundingClientRect(), s = getComputedStyle(e);
	const name = e.tagName + ' ' + (e.getAttribute('href') || e.name || e.textContent.trim().slice(0, 30));
	if (e === document.body) return '';
	if (s.outlineStyle === 'none' || parseFloat(s.outlineWidth) < 2) return name + ' has no outline';
	if (!r.width || !r.height) return name + ' has no size';
	if (r.bottom <= 0 || r.right <= 0 || r.top >= innerHeight || r.left >= innerWidth) {
		return name + ' is not in the window';
	}
	return '';
})()`

// tabTo presses Tab until what a selector names has the focus. Every stop on the way must be seen.
func tabTo(t *testing.T, ctx context.Context, selector string) {
	t.Helper()
	for range 200 {
		do(t, ctx, chromedp.KeyEvent(kb.Tab))
		if wrong := eval[string](t, ctx, focused); wrong != "" {
			t.Errorf("after Tab: %s", wrong)
		}
		if eval[bool](t, ctx, `document.activeElement.matches('`+selector+`')`) {
			return
		}
	}
	t.Fatalf("Tab does not reach %s", selector)
}

func TestQuestionIsAnsweredByKeyboard(t *testing.T) {
	ctx := open(t)
	id, err := submit(op{"op": "input", "text": "Go on?"}, op{"op": "complete", "text": "went on"})
	if err != nil {
		t.Fatal(err)
	}
	do(t, ctx, chromedp.Navigate(server+"/console/tasks/"+id), chromedp.WaitVisible(`.asks textarea`))
	tabTo(t, ctx, `.asks textarea`)
	do(t, ctx, chromedp.KeyEvent("yes"))
	tabTo(t, ctx, `.asks button`)
	do(t, ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`.done`), chromedp.WaitVisible(`.head .s-completed`))
}

func TestTaskIsCanceledByKeyboard(t *testing.T) {
	for _, scheme := range []string{"light", "dark"} {
		ctx := open(t)
		id, err := submit(op{"op": "status", "text": "thinking"}, op{"op": "hang"})
		if err != nil {
			t.Fatal(err)
		}
		do(t, ctx, theme(scheme, 1440), chromedp.Navigate(server+"/console/tasks/"+id),
			chromedp.WaitVisible(`.acts summary`))
		tabTo(t, ctx, `.acts summary`)
		do(t, ctx, chromedp.KeyEvent(kb.Enter))
		tabTo(t, ctx, `.acts input[name=reason]`)
		do(t, ctx, chromedp.KeyEvent("it hangs"))
		tabTo(t, ctx, `.acts button.danger`)
		do(t, ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`.head .s-canceled`))
	}
}

func TestKeysMoveThroughTheConsole(t *testing.T) {
	ctx := open(t)
	do(t, ctx, chromedp.Navigate(server+"/console/"), chromedp.WaitReady("main"))
	do(t, ctx, chromedp.KeyEvent("g"), chromedp.KeyEvent("t"), chromedp.WaitVisible(`#list [data-row]`))
	do(t, ctx, chromedp.KeyEvent("j"), chromedp.KeyEvent("j"), chromedp.KeyEvent("k"))
	want := eval[string](t, ctx, `document.querySelectorAll('[data-row]')[0].href`)
	if got := eval[string](t, ctx, `document.activeElement.href`); got != want {
		t.Errorf("j j k focuses %s, want %s", got, want)
	}
	do(t, ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`#task`))
	if at := eval[string](t, ctx, `location.href`); at != want {
		t.Errorf("Enter opens %s, want %s", at, want)
	}
	do(t, ctx, chromedp.KeyEvent("g"), chromedp.KeyEvent("t"), chromedp.WaitVisible(`#list`), chromedp.KeyEvent("/"))
	if id := eval[string](t, ctx, `document.activeElement.id`); id != "q" {
		t.Errorf("/ focuses %q", id)
	}
	// In a field, keys are text. The driver also types the slash, which a keyboard does not.
	do(t, ctx, chromedp.KeyEvent("g"), chromedp.KeyEvent("i"))
	if text := eval[string](t, ctx, `document.querySelector('#q').value`); text != "/gi" {
		t.Errorf("the field has %q, want gi", text)
	}
}

func TestHelpListsTheKeys(t *testing.T) {
	ctx := open(t)
	do(t, ctx, chromedp.Navigate(server+"/console/audit"), chromedp.WaitReady("main"), chromedp.KeyEvent("?"),
		chromedp.WaitVisible(`dialog[open]`))
	if n := eval[int](t, ctx, `document.querySelectorAll('dialog[open] dt').length`); n < 10 {
		t.Errorf("the help lists %d keys", n)
	}
	do(t, ctx, chromedp.KeyEvent(kb.Escape))
	until(t, ctx, `!document.querySelector('dialog').open`)
	// Each letter of the help leads to the page that it names.
	letters := eval[[]string](t, ctx, `[...document.querySelectorAll('nav a')].map((a) => a.dataset.key)`)
	for _, letter := range letters {
		do(t, ctx, chromedp.KeyEvent("g"), chromedp.KeyEvent(letter),
			chromedp.WaitVisible(`nav a[aria-current][data-key="`+letter+`"]`, chromedp.ByQuery))
	}
}
