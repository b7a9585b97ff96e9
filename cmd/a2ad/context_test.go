package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// places are servers that note who calls them.
type places struct {
	mu     sync.Mutex
	called []string // path and credentials
}

func (p *places) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.called = append(p.called, strings.TrimSpace(r.Host+" "+r.URL.Path+" "+r.Header.Get("Authorization")))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"tasks":[]}`))
}

// calls returns what was called since the last time.
func (p *places) calls() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := strings.Join(p.called, "\n")
	p.called = nil
	return all
}

// TestCommandsWorkOnTheContext: on the current one, or on that of A2AD_CONTEXT, unless something else says where.
func TestCommandsWorkOnTheContext(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	p := &places{}
	one, two := httptest.NewServer(p), httptest.NewServer(p)
	defer one.Close()
	defer two.Close()
	a2ad := func(code int, env []string, args ...string) *invocation {
		t.Helper()
		i := &invocation{env: append([]string{"HOME=" + home}, env...)}
		if i.run(t, args...); i.code != code {
			t.Errorf("%v a2ad %v: exit code %d, want %d\n%s%s", env, args, i.code, code, i.stdout, i.stderr)
		}
		return i
	}
	a2ad(exitOK, []string{"A2AD_API_KEY=k1"}, "context", "add", "one", "--server", one.URL+"/")
	if i := a2ad(exitOK, []string{"A2AD_API_KEY=k2"}, "context", "add", "two", "--server", two.URL); i.stderr !=
		"the current context is one\n" {
		t.Errorf("%q", i.stderr)
	}
	a2ad(exitOK, []string{"A2AD_DATABASE_URL=postgres://u:secret@127.0.0.1:1/d"}, "context", "add", "db", "--database")

	const path = " /admin/v1/tasks"
	first, second := strings.TrimPrefix(one.URL, "http://"), strings.TrimPrefix(two.URL, "http://")
	for _, tt := range []struct {
		env  []string
		args []string
		code int
		want string
	}{
		{nil, []string{"task", "ls"}, exitOK, first + path + " Bearer k1"},
		{[]string{"A2AD_CONTEXT=two"}, []string{"task", "ls"}, exitOK, second + path + " Bearer k2"},
		{[]string{"A2AD_API_KEY=k3"}, []string{"task", "ls"}, exitOK, first + path + " Bearer k3"},
		// No key of a context goes to a server that is not its own.
		{nil, []string{"task", "ls", "--server", two.URL}, exitOK, second + path},
		{[]string{"A2AD_SERVER=" + two.URL}, []string{"task", "ls"}, exitOK, second + path},
		{[]string{"A2AD_DATABASE_URL=postgres://127.0.0.1:1/d"}, []string{"task", "ls"}, exitFailure, ""},
		{[]string{"A2AD_DATA_DIR=" + home}, []string{"task", "ls"}, exitFailure, ""},
		{nil, []string{"task", "ls", "--data-dir", home}, exitFailure, ""},
		{[]string{"A2AD_CONTEXT=db"}, []string{"task", "ls"}, exitFailure, ""},
		{[]string{"A2AD_CONTEXT=none"}, []string{"task", "ls"}, exitUsage, ""},
		{nil, []string{"migrate", "status"}, exitUsage, ""},
		{[]string{"A2AD_CONTEXT=db"}, []string{"send", "hello"}, exitUsage, ""},
	} {
		a2ad(tt.code, tt.env, tt.args...)
		if got := p.calls(); got != tt.want {
			t.Errorf("%v %v called %q, want %q", tt.env, tt.args, got, tt.want)
		}
	}
	a2ad(exitFailure, nil, "send", "hello") // which is no agent
	if got := p.calls(); !strings.HasPrefix(got, first+" /.well-known/") || !strings.Contains(got, "Bearer k1") {
		t.Errorf("send called %q", got)
	}
	a2ad(exitFailure, nil, "send", "hello", "--url", two.URL)
	if got := p.calls(); !strings.HasPrefix(got, second) || strings.Contains(got, "Bearer") {
		t.Errorf("send --url called %q", got)
	}
	if i := a2ad(exitUsage, []string{"A2AD_CONTEXT=none"}, "task", "ls"); i.stderr !=
		"a2ad: context none not found; contexts here: db, one, two\n" {
		t.Errorf("%q", i.stderr)
	}
}

func TestContextsAreListedAndRemoved(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	a2ad := func(env string, args ...string) *invocation {
		t.Helper()
		i := &invocation{env: []string{"HOME=" + home, env}}
		if i.run(t, args...); i.code != exitOK {
			t.Errorf("a2ad %s: exit code %d: %s", strings.Join(args, " "), i.code, i.stderr)
		}
		return i
	}
	a2ad("A2AD_API_KEY=key-of-prod", "context", "add", "prod", "--server", "https://a2a.example")
	a2ad("A2AD_DATABASE_URL=postgres://u:hidden@h/d", "context", "add", "db", "--database")
	a2ad("", "context", "use", "db")
	want := []contextRow{
		{Name: "db", Current: true, Database: "postgres://u:xxxxx@h/d"},
		{Name: "prod", Server: "https://a2a.example", HasKey: true},
	}
	list := a2ad("", "context", "ls", "-o", "json")
	if got := rows[contextRow](t, list); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%s", list.stdout)
	}
	if text := a2ad("", "context", "ls").stdout; strings.Contains(text+list.stdout, "hidden") ||
		strings.Contains(text+list.stdout, "key-of-prod") {
		t.Errorf("a secret is shown:\n%s", text)
	}
	if i := a2ad("", "context", "rm", "db"); i.stderr != "there is no current context\n" {
		t.Errorf("%q", i.stderr)
	}
	text, err := os.ReadFile(filepath.Join(home, ".config", "a2ad", "contexts.json"))
	if err != nil || strings.Contains(string(text), "hidden") || !strings.Contains(string(text), "key-of-prod") {
		t.Errorf("%v %s", err, text)
	}
}
