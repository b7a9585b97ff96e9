package browsertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// server is the running a2ad, for all tests.
var server string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	bin := os.Getenv("A2AD_BIN")
	if bin == "" {
		fmt.Fprintln(os.Stderr, "A2AD_BIN is the path of a2ad: use make console-browser")
		return 2
	}
	dir, err := os.MkdirTemp("", "a2ad-console-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer os.RemoveAll(dir)
	var stop func()
	if server, stop, err = start(bin, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer stop()
	if err := seed(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	var quit func()
	if browser, quit, err = startBrowser(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer quit()
	defer func() {
		for _, end := range atEnd {
			end()
		}
	}()
	return m.Run()
}

// start starts `a2ad dev` and waits until it is ready.
func start(bin, dir string, more ...string) (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	at := l.Addr().String()
	l.Close()
	stop, err = startAt(bin, dir, at, more...)
	return "http://" + at, stop, err
}

// startAt starts `a2ad dev` at an address, with the data of dir.
func startAt(bin, dir, at string, more ...string) (stop func(), err error) {
	args := append([]string{
		"dev", "--listen", at, "--admin-listen", "off", "--data-dir", filepath.Join(dir, "data"),
	}, more...)
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), "A2AD_SSE_PING=1s") // a page learns soon that its session has ended
	log, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	processes[dir] = cmd.Process.Pid
	stop = func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "msg=ready") {
			go func() { // the server must be able to write its log
				for lines.Scan() {
				}
			}()
			return stop, nil
		}
	}
	stop()
	return nil, fmt.Errorf("a2ad ended before it was ready")
}

// processes are the ids of the servers by their directories.
var processes = map[string]int{}

// postgresDir returns the data directory of the PostgreSQL that a server has started. If root starts it, the directory
// is not below that of the server.
func postgresDir(t *testing.T, server int) string {
	t.Helper()
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", server))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range children {
		list, _ := os.ReadFile(file) // a thread that has ended
		for _, child := range strings.Fields(string(list)) {
			command, _ := os.ReadFile("/proc/" + child + "/cmdline")
			args := strings.Split(string(command), "\x00")
			if i := slices.Index(args, "-D"); i > 0 && filepath.Base(args[0]) == "postgres" {
				return args[i+1]
			}
		}
	}
	t.Fatal("the server has no PostgreSQL")
	return ""
}

// query runs SQL in the database of a server that start has started.
func query(t *testing.T, dir, sql string) string {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(postgresDir(t, processes[dir]), "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(file), "\n")
	psql := "psql"
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/psql"); len(found) > 0 {
		psql = found[len(found)-1]
	}
	out, err := exec.Command(psql, "-XqAt", "-v", "ON_ERROR_STOP=1", "-h", lines[4], "-p", lines[3], "-U", "a2ad",
		"-c", sql, "a2ad").CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// hostile is text that must stay text.
const hostile = `"><script>window.ran=1;alert(1)</script><svg onload=alert(2)><img src=x onerror="alert(3)">` +
	"</textarea>javascript:alert(4) \u202egnp.exe \x1b[31mred"

// markdown is a text of an agent that tries to be more than text, too.
const markdown = "# Dear customer,\n\nwe are **sorry**.\n\n" +
	"- [x](javascript:alert(5))\n- ![x](https://evil.example/x.png)\n\n" +
	"| a | b |\n|---|--:|\n| " + "a long cell of a table, which must not make the page wide |" + " 2 |\n\n" +
	"```\na_long_line_of_code_" + "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n```\n" + hostile

type op = map[string]any

// seed makes tasks of each kind.
func seed() error {
	for i := range 12 {
		if _, err := submit(op{"op": "complete", "text": fmt.Sprintf("order %d is done", i)}); err != nil {
			return err
		}
	}
	for i := range 5 {
		if _, err := submit(op{"op": "fail", "text": fmt.Sprintf("upstream answered %d", 500+i)}); err != nil {
			return err
		}
	}
	for _, list := range [][]op{
		{{"op": "artifact", "id": "a", "text": hostile}, {"op": "fail", "text": hostile}},
		{{"op": "artifact", "id": "draft", "text": markdown}, {"op": "input",
			"text": "Refund 120 EUR? " + hostile}},
		{{"op": "auth", "text": "Sign in to the CRM."}},
		{{"op": "status", "text": "thinking"}, {"op": "hang"}},
	} {
		if _, err := submit(list...); err != nil {
			return err
		}
	}
	return nil
}

// submit sends a script to the demo agent and returns the id of the task.
func submit(ops ...op) (id string, err error) { return submitTo(server, ops...) }

func submitTo(server string, ops ...op) (id string, err error) {
	body, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": map[string]any{
			"configuration": op{"blocking": false},
			"message": op{"kind": "message", "messageId": fmt.Sprint(time.Now().UnixNano()), "role": "user",
				"parts": []op{{"kind": "data", "data": op{"script": ops}}, {"kind": "text", "text": hostile}}},
		},
	})
	if err != nil {
		return "", err
	}
	res, err := http.Post(server+"/agents/script", "application/json", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var answer struct {
		Result struct{ ID string }
		Error  any
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Result.ID == "" {
		return "", fmt.Errorf("submit: %v %v", err, answer.Error)
	}
	return answer.Result.ID, nil
}

// browser is Chromium, for all tests.
var browser context.Context

// startBrowser starts Chromium.
func startBrowser() (ctx context.Context, stop func(), err error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1440, 900))
	alloc, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ = chromedp.NewContext(alloc)
	return ctx, stop, chromedp.Run(ctx)
}

// open returns a tab of the browser, which has no cookies of other tests.
func open(t *testing.T) context.Context {
	t.Helper()
	ctx := tab(t, browser)
	do(t, ctx, network.ClearBrowserCookies())
	return ctx
}

// tab returns a new tab.
func tab(t *testing.T, ctx context.Context) context.Context {
	t.Helper()
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(end)
	if err := chromedp.Run(ctx); err != nil { // without a timeout, which would end the browser
		t.Fatal(err)
	}
	t.Cleanup(func() { keepPicture(t, ctx) })
	chromedp.ListenTarget(ctx, func(event any) {
		if d, ok := event.(*page.EventJavascriptDialogOpening); ok {
			t.Errorf("text of a task was run: %s", d.Message)
			go chromedp.Run(ctx, page.HandleJavaScriptDialog(false)) //nolint:errcheck // the test has failed
		}
	})
	return ctx
}

// keepPicture writes what a tab shows into FAILURES if the test has failed.
func keepPicture(t *testing.T, ctx context.Context) {
	dir := os.Getenv("FAILURES")
	if !t.Failed() || dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var picture []byte
	var at string
	if err := chromedp.Run(ctx, chromedp.Location(&at), chromedp.FullScreenshot(&picture, 100)); err != nil {
		t.Logf("no picture: %v", err)
		return
	}
	pictures.Lock()
	defer pictures.Unlock()
	pictures.n++
	file := filepath.Join(dir, fmt.Sprintf("%s-%d.png", strings.ReplaceAll(t.Name(), "/", "-"), pictures.n))
	if err := os.WriteFile(file, picture, 0o644); err != nil {
		t.Log(err)
	}
	t.Logf("%s shows %s", file, at)
}

var pictures struct {
	sync.Mutex
	n int
}

// patience is how long a test waits for the browser. It is used up only by a test that fails.
const patience = 5 * time.Minute

func do(t *testing.T, ctx context.Context, actions ...chromedp.Action) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, action := range actions {
		if err := act(ctx, action); err != nil {
			t.Fatal(err)
		}
	}
}

// act runs an action. A live page may replace an element after the action has found it, and before it uses it. Then
// nothing has happened, and the action is repeated.
func act(ctx context.Context, action chromedp.Action) error {
	if list, ok := action.(chromedp.Tasks); ok {
		for _, one := range list {
			if err := act(ctx, one); err != nil {
				return err
			}
		}
		return nil
	}
	for {
		err := chromedp.Run(ctx, action)
		var refused *cdproto.Error
		if !errors.As(err, &refused) || !strings.HasPrefix(refused.Message, "Could not find node with given id") {
			return err
		}
	}
}

// until waits until an expression is true in the page.
func until(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, chromedp.Poll(expression, nil)); err != nil {
		t.Fatalf("wait for %s: %v", expression, err)
	}
}

// eval evaluates an expression in the page.
func eval[T any](t *testing.T, ctx context.Context, expression string) (v T) {
	t.Helper()
	do(t, ctx, chromedp.Evaluate(expression, &v))
	return v
}

// cancel cancels a task as its client.
func cancel(t *testing.T, server, id string) {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"tasks/cancel","params":{"id":"` + id + `"}}`
	res, err := http.Post(server+"/agents/script", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
}

// await waits for the promise that an expression returns.
func await(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
