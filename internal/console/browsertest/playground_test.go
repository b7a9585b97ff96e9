package browsertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

func TestPlaygroundStreams(t *testing.T) {
	ctx := open(t)
	do(t, ctx, chromedp.Navigate(server+"/console/playground?agent=echo"), chromedp.WaitVisible(`textarea#text`),
		chromedp.SendKeys(`textarea#text`, "hello there"), chromedp.Click(`form.act button.main`),
		chromedp.WaitVisible(`#played .s-completed`)) // without a reload
	text := eval[string](t, ctx, `document.querySelector('#played').textContent`)
	for _, want := range []string{"hello there", "TASK_STATE_COMPLETED", "artifactUpdate"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
}

func TestDroppedStreamIsResumedInTheBrowser(t *testing.T) {
	ctx := open(t)
	const script = `{"script":[{"op":"artifact","id":"a","text":"before"},{"op":"input","text":"Go on?"},` +
		`{"op":"artifact","id":"b","text":"after the drop"},{"op":"complete"}]}`
	do(t, ctx, chromedp.Navigate(server+"/console/playground?agent=script"), chromedp.WaitVisible(`textarea#text`),
		chromedp.Click(`form.act summary`), chromedp.SendKeys(`textarea#data`, script),
		chromedp.Click(`form.act button.main`), chromedp.WaitVisible(`#played h2 .s-input-required`))
	do(t, ctx, chromedp.Click(`form:has(#dropped) button`), chromedp.WaitVisible(`#played .alert.mild`),
		chromedp.SendKeys(`textarea#text`, "yes"), chromedp.Click(`form.act button.main`),
		chromedp.WaitVisible(`#played h2 .s-completed`))
	// The stream is dropped at the question, which the agent has passed meanwhile.
	do(t, ctx, chromedp.Evaluate(`(() => {
		const ids = [...document.querySelector('#dropped').options].map((o) => o.value);
		document.querySelector('#dropped').value = ids.find((id) => id.startsWith('4-'));
	})()`, nil), chromedp.Click(`form:has(#dropped) button`), chromedp.WaitVisible(`button[name=resumed]`),
		chromedp.Click(`button[name=resumed]`), chromedp.WaitVisible(`#played .done`))
	text := eval[string](t, ctx, `document.querySelector('[aria-label=Frames]').textContent`)
	if !strings.Contains(text, "after the drop") || !strings.Contains(text, "Nothing is missing: event 4 is followed by") {
		t.Errorf("the frames are %s", text)
	}
}

// A program that is copied from the playground runs as it is.
func TestCopiedProgramsRun(t *testing.T) {
	ctx := open(t)
	do(t, ctx, chromedp.Navigate(server+"/console/playground?agent=echo"), chromedp.WaitVisible(`textarea#text`),
		chromedp.SendKeys(`textarea#text`, `it's "$(id)" \`+"`id`"), chromedp.Click(`form.act button.main`),
		chromedp.WaitVisible(`#played h2 .s-completed`))
	do(t, ctx, chromedp.Evaluate(`(() => {
		const ids = [...document.querySelector('#dropped').options].map((o) => o.value);
		document.querySelector('#dropped').value = ids.at(-1);
	})()`, nil), chromedp.Click(`form:has(#dropped) button`), chromedp.WaitVisible(`button[name=resumed]`))
	programs := eval[map[string]string](t, ctx, `Object.fromEntries([...document.querySelectorAll('[data-keep^="s-"]')]
		.map((d) => [d.dataset.keep.slice(2), d.querySelector('[data-copy]').dataset.copy]))`)
	for name, run := range map[string][]string{
		"curl": {"program.sh", "sh"}, "Python": {"program.py", "python3"}, "TypeScript": {"program.mjs", "node"},
		"curl, to resume": {"resume.sh", "sh"},
	} {
		file := filepath.Join(t.TempDir(), run[0])
		if err := os.WriteFile(file, []byte(programs[name]), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(run[1], file).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "TASK_STATE_COMPLETED") || !strings.Contains(string(out), `$(id)`) {
			t.Errorf("%s prints %s, %v:\n%s", name, out, err, programs[name])
		}
	}
}
