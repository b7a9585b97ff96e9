package dockertest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/e2e/check"
)

const (
	api     = "http://127.0.0.1:8080"
	grpcAPI = "127.0.0.1:8081"

	leaseTTL = 5 * time.Second // see compose.override.yml and ha.override.yml

	commandLimit = 20 * time.Minute // the first build of the image compiles everything, maybe on a busy machine
	eventually   = 90 * time.Second
)

// The files of an installation, as in COMPOSE_FILE.
const (
	plainFiles = "docker-compose.yml:internal/dockertest/compose.override.yml"
	pageFiles  = "docker-compose.yml:deploy/compose/ha.yml" // in docs/tutorials/high-availability.md
	haFiles    = pageFiles + ":internal/dockertest/ha.override.yml"
)

// stack is an installation with Docker Compose.
type stack struct {
	t     *testing.T
	files string
	key   string // of a caller
}

// run runs a command in the root of the repository, and returns its output. It fails the test if the command fails.
func (s *stack) run(name string, args ...string) string {
	s.t.Helper()
	out, err := s.try(name, args...)
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (s *stack) try(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "COMPOSE_FILE="+s.files, "COMPOSE_PROGRESS=plain")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		out.Write(errs.Bytes())
	}
	return out.String(), err
}

func (s *stack) compose(args ...string) string {
	s.t.Helper()
	return s.run("docker", append([]string{"compose"}, args...)...)
}

// container returns the id of a service's container.
func (s *stack) container(service string) string {
	s.t.Helper()
	id := strings.TrimSpace(s.compose("ps", "--all", "--quiet", service))
	if id == "" || strings.Contains(id, "\n") {
		s.t.Fatalf("the containers of %s are %q, want one", service, id)
	}
	return id
}

// a2ad runs a command of a2ad in a replica.
func (s *stack) a2ad(args ...string) string {
	s.t.Helper()
	return s.compose(append([]string{"exec", "-T", "--env", "A2AD_API_KEY=" + s.key, "a2ad-1", "/a2ad"}, args...)...)
}

// createKey creates the key of a caller.
func (s *stack) createKey(scopes string) {
	s.t.Helper()
	var made struct{ Key string }
	out := s.a2ad("apikey", "create", "--tenant", "acme", "--owner", "me", "--scopes", scopes, "-o", "json")
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Key == "" {
		s.t.Fatalf("the key is in %q: %v", out, err)
	}
	s.key = made.Key
}

// healthy waits until the container of a service is healthy.
func (s *stack) healthy(services ...string) {
	s.t.Helper()
	for _, service := range services {
		id := s.container(service)
		s.until(service+" is healthy", func() bool {
			out, err := s.try("docker", "inspect", "--format", "{{.State.Health.Status}}", id)
			return err == nil && strings.TrimSpace(out) == "healthy"
		})
	}
}

// until waits for a condition.
func (s *stack) until(what string, ok func() bool) {
	s.t.Helper()
	end := time.Now().Add(eventually)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(end) {
			s.t.Fatalf("waited in vain: %s\n%s", what, s.compose("ps", "--all"))
		}
		<-tick.C
	}
}

// client returns a client of an agent, through the proxy.
func (s *stack) client(agent string) *client.Client {
	s.t.Helper()
	http := &http.Client{Transport: &http.Transport{}}
	s.t.Cleanup(http.CloseIdleConnections)
	return &client.Client{URL: api + "/agents/" + agent, Version: client.V10, APIKey: s.key, HTTP: http, Tries: 1000}
}

// play returns a message whose script the agent "script" plays.
func play(t *testing.T, ops ...map[string]any) a2a.Message {
	t.Helper()
	data, err := json.Marshal(map[string]any{"script": ops})
	if err != nil {
		t.Fatal(err)
	}
	return a2a.Message{Parts: []a2a.Part{{Kind: a2a.PartData, Data: data}}}
}

func text(words string) a2a.Message {
	return a2a.Message{Parts: []a2a.Part{{Kind: a2a.PartText, Text: words}}}
}

// stream follows a task that writes n chunks, one every 100 ms, and calls after once the third has come. It fails the
// test unless each chunk comes once, in order.
func (s *stack) stream(n int, after func()) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), eventually)
	defer cancel()
	if _, err := follow(ctx, s.t, s.client("script"), n, after); err != nil {
		s.t.Error(err)
	}
}

// follow sends a task that writes n chunks, one every 100 ms, follows its stream, and calls after once the third has
// come. It returns the task, and an error unless each chunk comes once, in order.
func follow(ctx context.Context, t *testing.T, c *client.Client, n int, after func()) (task string, err error) {
	p := client.SendParams{IdempotencyKey: client.NewMessageID(),
		Message: play(t, map[string]any{"op": "chunk", "id": "a", "n": n, "bytes": 16, "every_ms": 100})}
	chunks, last := 0, int64(0)
	var state a2a.State
	for e, err := range c.Stream(ctx, p, client.StreamOptions{}) {
		switch {
		case err != nil:
			return task, fmt.Errorf("the stream broke after %d chunks: %w", chunks, err)
		case e.Gap:
			return task, fmt.Errorf("the stream has a gap after %d chunks", chunks)
		case e.Seq < last:
			return task, fmt.Errorf("the stream has event %d after event %d", e.Seq, last)
		}
		last = e.Seq
		if e.Kind == client.KindArtifact {
			if chunks++; chunks == 3 {
				after()
			}
		}
		task, state = e.TaskID, e.State
	}
	if chunks != n || state != a2a.StateCompleted {
		return task, fmt.Errorf("the stream of task %s had %d chunks and ended in %s, want %d and %s", task, chunks,
			state, n, a2a.StateCompleted)
	}
	return task, nil
}

// address returns the address of a service's container in the network that all containers share.
func (s *stack) address(service string) string {
	s.t.Helper()
	const format = `{{range $name, $n := .NetworkSettings.Networks}}{{$name}} {{$n.IPAddress}}{{"\n"}}{{end}}`
	for line := range strings.Lines(s.run("docker", "inspect", "--format", format, s.container(service))) {
		if name, ip, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasSuffix(name, "_default") && ip != "" {
			return ip
		}
	}
	s.t.Fatalf("%s has no address", service)
	return ""
}

// database connects to PostgreSQL in its container.
func (s *stack) database() *pgx.Conn {
	s.t.Helper()
	password := s.compose("exec", "-T", "postgres", "cat", "/run/secrets/postgres/superuser")
	return s.connect("postgres://postgres:" + strings.TrimSpace(password) + "@" + s.address("postgres") + "/a2ad")
}

func (s *stack) connect(url string) *pgx.Conn {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), eventually)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// invariants checks the database once all tasks have ended.
func (s *stack) invariants() { s.atRest(s.database()) }

func (s *stack) atRest(conn *pgx.Conn) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*eventually)
	defer cancel()
	s.until("all tasks have ended", func() bool {
		var open int
		err := conn.QueryRow(ctx, "SELECT count(*) FROM audit.task WHERE state IN ('SUBMITTED', 'WORKING')").Scan(&open)
		if err != nil {
			s.t.Fatal(err)
		}
		return open == 0
	})
	found, err := check.Database(ctx, conn, 2*leaseTTL)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, v := range found {
		s.t.Error(v)
	}
}
