package conformance_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/e2e/check"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// server is an a2ad server with a database of its own.
type server struct {
	t    *testing.T
	db   *pgxpool.Pool
	env  []string
	http *http.Transport

	restarting sync.Mutex

	mu      sync.Mutex
	process *process // guarded by mu
	url     string   // guarded by mu
}

// settings make the server poll every few milliseconds instead of seconds.
var settings = []string{
	"A2AD_POLL_INTERVAL=250ms", "A2AD_WAKE_INTERVAL=5ms", "A2AD_RESCUE_INTERVAL=100ms", "A2AD_DB_POOL=8",
	"A2AD_AUTH=none", "A2AD_LISTEN=127.0.0.1:0", "A2AD_ADMIN_LISTEN=off", "A2AD_REPLICA=server", "A2AD_MAX_STEPS=1500",
}

// startServer starts a server with the agents of cases. At the end of the test, the database must be consistent.
func startServer(t *testing.T, cases ...testCase) *server {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	agents := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(agents, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("echo", "name: echo\ndescription: The default agent.\ndefault: true\nexecutor: {echo: {}}\n")
	for _, c := range cases {
		write(c.Case, agentFile(c.Case, c.Limits))
		for _, other := range c.Agents {
			write(other, agentFile(other, ""))
		}
	}
	db := storetest.New(t)
	s := &server{t: t, db: db.Pool(t), http: &http.Transport{DisableCompression: true}}
	s.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir(),
		"A2AD_DATABASE_URL=" + db.URL, "A2AD_AGENTS=" + agents,
	}, settings...)
	t.Cleanup(s.http.CloseIdleConnections)
	t.Cleanup(func() { s.process.kill() })
	if s.start(); s.address() == "" {
		t.FailNow()
	}
	t.Cleanup(s.judge)
	return s
}

func (s *server) start() {
	p := spawn(s.t, s.env, filepath.Join(buildDir, "a2ad"), "serve")
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	for {
		text, changed := p.output.now()
		if url := apiURL(text); url != "" {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.url = url
			return
		}
		select {
		case <-changed:
		case <-p.exited:
			s.t.Errorf("the server exited:\n%s", p.output)
			return
		case <-s.t.Context().Done():
			return
		}
	}
}

// apiURL returns the URL that a log names.
func apiURL(log string) string {
	for line := range strings.Lines(log) {
		var l struct{ Msg, API string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "ready" {
			return "http://" + l.API
		}
	}
	return ""
}

// restart kills the server and starts it again, at another address.
func (s *server) restart() {
	s.restarting.Lock()
	defer s.restarting.Unlock()
	s.mu.Lock()
	old := s.process
	s.url = ""
	s.mu.Unlock()
	old.kill()
	s.start()
}

// address returns the URL of the server, or "" while it is down.
func (s *server) address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url
}

// client returns a client of an agent.
func (s *server) client(agent string) *client.Client {
	return &client.Client{
		URL: s.address() + "/agents/" + agent, Version: client.V10, HTTP: &http.Client{Transport: s.http},
		Retry: backoff.Policy{Base: 1, Max: 1},
	}
}

// judge checks what the cases have left in the database.
func (s *server) judge() {
	if s.t.Failed() {
		text, _ := s.process.output.now()
		for line := range strings.Lines(text) {
			if strings.Contains(line, `"level":"ERROR"`) || strings.Contains(line, `"level":"WARN"`) {
				s.t.Log(line)
			}
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found, err := check.Database(ctx, s.db, patience)
	if err != nil {
		s.t.Errorf("check the database: %v", err)
	}
	for _, v := range found {
		s.t.Errorf("%s", v)
	}
	s.process.stop(s.t)
}

// exec changes the database, and returns the number of changed rows.
func (s *server) exec(sql string, args ...any) int64 {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tag, err := s.db.Exec(ctx, sql, args...)
	if err != nil {
		s.t.Errorf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}

// column reads one column of texts.
func (s *server) column(sql string, args ...any) []string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rows, err := s.db.Query(ctx, sql, args...)
	if err != nil {
		s.t.Errorf("%s: %v", sql, err)
		return nil
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		s.t.Errorf("%s: %v", sql, err)
	}
	return list
}

// one reads one text, or "" if there is no row.
func (s *server) one(sql string, args ...any) string {
	if list := s.column(sql, args...); len(list) > 0 {
		return list[0]
	}
	return ""
}
