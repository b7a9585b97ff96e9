package dockertest_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	apb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// TestCompose runs the installation through a life: it is started as README says, used, and then its parts fail one
// after the other. The subtests need each other.
func TestCompose(t *testing.T) {
	s := &stack{t: t, files: plainFiles}
	s.run("make", "up")
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := s.try("docker", "compose", "logs", "--tail", "40")
			t.Log(logs)
		}
		_, _ = s.try("docker", "compose", "down", "--volumes")
	})
	for _, part := range []struct {
		name string
		run  func(s *stack)
	}{
		{"image", image},
		{"second up", secondUp},
		{"key", func(s *stack) { s.createKey("tasks:read,tasks:write") }},
		{"operator", operator},
		{"bindings", bindings},
		{"observability", observability},
		{"migrate again", migrateAgain},
		{"kill a replica", killReplica},
		{"stop a replica", stopReplica},
		{"pause a replica", pauseReplica},
		{"replica off the network", disconnectReplica},
		{"rolling upgrade", rollingUpgrade},
		{"restart PostgreSQL", restartPostgres},
		{"kill PostgreSQL", killPostgres},
		{"down and up", downAndUp},
		{"third replica", thirdReplica},
		{"two replicas of one name", sameName},
		{"invariants", (*stack).invariants},
	} {
		if !t.Run(part.name, func(t *testing.T) {
			inner := &stack{t: t, files: s.files, key: s.key}
			defer func() { s.key = inner.key }()
			part.run(inner)
		}) {
			return
		}
	}
}

// image checks what the containers may do, and that the binary knows its version.
func image(s *stack) {
	changes, err := os.ReadFile(filepath.Join("..", "..", "CHANGELOG.md"))
	if err != nil {
		s.t.Fatal(err)
	}
	released := regexp.MustCompile(`(?m)^## \[([0-9][^]]*)\]`).FindSubmatch(changes)
	if got := s.a2ad("version"); released == nil || !strings.Contains(got, "a2ad "+string(released[1])+" ") {
		s.t.Errorf("the version is %q, want that of the changelog, %q", got, released)
	}
	s.run("docker", "build", "--quiet", "--tag", "a2ad:plain", ".")
	if got := s.run("docker", "run", "--rm", "a2ad:plain", "version"); !strings.Contains(got, string(released[1])) {
		s.t.Errorf("an image that is built without arguments has the version %q, want %s", got, released[1])
	}
	for _, service := range []string{"a2ad-1", "a2ad-2"} {
		var found []struct {
			Config     struct{ User string }
			HostConfig struct {
				ReadonlyRootfs bool
				CapDrop        []string
				SecurityOpt    []string
			}
		}
		if err := json.Unmarshal([]byte(s.run("docker", "inspect", s.container(service))), &found); err != nil {
			s.t.Fatal(err)
		}
		c := found[0]
		h := c.HostConfig
		if c.Config.User != "65532:65532" || !h.ReadonlyRootfs || strings.Join(h.CapDrop, "") != "ALL" ||
			strings.Join(h.SecurityOpt, "") != "no-new-privileges:true" {
			s.t.Errorf("%s has too many rights: %+v", service, c)
		}
	}
}

// secondUp: what is up stays as it is, whichever command is used.
func secondUp(s *stack) {
	before := s.compose("ps", "--quiet")
	s.run("make", "up")
	s.compose("up", "--detach", "--wait")
	s.run("make", "up")
	if after := s.compose("ps", "--quiet"); after != before {
		s.t.Errorf("another up has replaced containers:\n%s\nwere\n%s", after, before)
	}
}

// operator runs the commands of an operator as documented. Doctor finds neither fault nor warning.
func operator(s *stack) {
	if out := s.a2ad("doctor"); !strings.Contains(out, "0 faults, 0 warnings") {
		s.t.Errorf("doctor says\n%s", out)
	}
	if out := s.a2ad("stats"); !strings.Contains(out, "a2ad-1") || !strings.Contains(out, "a2ad-2") {
		s.t.Errorf("stats does not show both replicas:\n%s", out)
	}
	if out := s.a2ad("send", "hello"); !strings.Contains(out, "hello") {
		s.t.Errorf("send answers %q", out)
	}
}

// bindings calls each binding through the proxy.
func bindings(s *stack) {
	ctx, cancel := context.WithTimeout(context.Background(), eventually)
	defer cancel()
	for _, v := range []client.Version{client.V03, client.V10} {
		c := s.client("echo")
		c.Version = v
		got, err := c.Send(ctx, client.SendParams{Message: text("hello")})
		if err != nil || got.State != a2a.StateCompleted {
			s.t.Errorf("JSON-RPC, version %d: %s, %v", v, got.Raw, err)
		}
	}
	out := s.run("curl", "--silent", "--show-error", "--fail", "--header", "Authorization: Bearer "+s.key,
		"--header", "A2A-Version: 1.0", "--json",
		`{"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}`,
		api+"/agents/echo/message:send")
	if !strings.Contains(out, "TASK_STATE_COMPLETED") {
		s.t.Errorf("REST answers %s", out)
	}
	conn, err := grpc.NewClient(grpcAPI, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.key, "a2a-version", "1.0")
	hello := &apb1.SendMessageRequest{Message: &apb1.Message{
		MessageId: client.NewMessageID(), Role: apb1.Role_ROLE_USER,
		Parts: []*apb1.Part{{Content: &apb1.Part_Text{Text: "hello"}}},
	}}
	answer, err := apb1.NewA2AServiceClient(conn).SendMessage(ctx, hello)
	if err != nil || answer.GetTask().GetStatus().GetState() != apb1.TaskState_TASK_STATE_COMPLETED {
		s.t.Errorf("gRPC answers %v, %v", answer, err)
	}
	hello.Message.MessageId = client.NewMessageID()
	events, err := apb1.NewA2AServiceClient(conn).SendStreamingMessage(ctx, hello)
	if err != nil {
		s.t.Fatal(err)
	}
	n := 0
	for {
		if _, err := events.Recv(); err != nil {
			break
		}
		n++
	}
	if n < 3 { // a Task, an artifact, a status
		s.t.Errorf("the stream of gRPC has %d events", n)
	}
}

// migrateAgain runs the migration as docs/how-to/upgrade.md says, beside the running replicas.
func migrateAgain(s *stack) {
	before := s.compose("ps", "--quiet")
	s.compose("run", "--rm", "--no-deps", "migrate")
	if after := s.compose("ps", "--quiet"); after != before {
		s.t.Errorf("the migration has replaced containers:\n%s\nwere\n%s", after, before)
	}
}

func killReplica(s *stack) {
	l := s.load(s.t)
	for _, victim := range []string{"a2ad-1", "a2ad-2"} { // one of them has the stream
		s.stream(50, func() {
			s.compose("kill", "--signal", "KILL", victim)
		})
		s.compose("start", victim)
		s.healthy(victim)
	}
	l.check(s)
}

// stopReplica: a replica that is stopped drains, and ends without an error or a warning.
func stopReplica(s *stack) {
	l := s.load(s.t)
	for _, victim := range []string{"a2ad-1", "a2ad-2"} {
		since := time.Now()
		s.stream(50, func() { s.compose("stop", victim) })
		id := s.container(victim)
		if code := strings.TrimSpace(s.run("docker", "inspect", "--format", "{{.State.ExitCode}}", id)); code != "0" {
			s.t.Errorf("%s has exit code %s", victim, code)
		}
		logs := s.compose("logs", "--no-log-prefix", "--since", since.UTC().Format(time.RFC3339), victim)
		for line := range strings.Lines(logs) {
			if strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`) {
				s.t.Errorf("%s was stopped and says %s", victim, line)
			}
		}
		s.compose("start", victim)
		s.healthy(victim)
	}
	l.check(s)
}

// pauseReplica: a replica that was frozen for longer than its lease writes nothing more of what others have taken over.
func pauseReplica(s *stack) {
	l := s.load(s.t)
	for _, victim := range []string{"a2ad-1", "a2ad-2"} {
		s.stream(100, func() {
			s.compose("pause", victim)
			frozen := time.Now()
			s.until("the leases end", func() bool { return time.Since(frozen) > leaseTTL+2*time.Second })
			s.compose("unpause", victim)
		})
		s.healthy(victim)
	}
	l.check(s)
}

func disconnectReplica(s *stack) {
	l := s.load(s.t)
	for _, victim := range []string{"a2ad-1", "a2ad-2"} {
		id := s.container(victim)
		s.stream(100, func() {
			s.run("docker", "network", "disconnect", "--force", "a2ad_default", id)
			cut := time.Now()
			s.until("the leases end", func() bool { return time.Since(cut) > leaseTTL+2*time.Second })
			s.run("docker", "network", "connect", "--alias", victim, "a2ad_default", id)
		})
		s.healthy(victim)
	}
	l.check(s)
}

// rollingUpgrade replaces one replica after the other, as docs/how-to/upgrade.md says.
func rollingUpgrade(s *stack) {
	l := s.load(s.t)
	for _, replica := range []string{"a2ad-1", "a2ad-2"} {
		s.stream(50, func() {
			s.compose("up", "--detach", "--wait", "--no-deps", "--force-recreate", replica)
		})
		l.more(s, 20)
	}
	l.check(s)
}

func restartPostgres(s *stack) {
	l := s.load(s.t)
	s.stream(50, func() { s.compose("restart", "postgres") })
	l.more(s, 20)
	l.check(s)
}

func killPostgres(s *stack) {
	l := s.load(s.t)
	s.stream(50, func() {
		s.compose("kill", "--signal", "KILL", "postgres")
		s.compose("start", "postgres")
	})
	l.more(s, 20)
	l.check(s)
}

// downAndUp: the volumes keep the tasks, the key and the secrets.
func downAndUp(s *stack) {
	ctx, cancel := context.WithTimeout(context.Background(), eventually)
	defer cancel()
	kept, err := s.client("echo").Send(ctx, client.SendParams{Message: text("keep me")})
	if err != nil {
		s.t.Fatal(err)
	}
	s.run("make", "down")
	s.run("docker", "image", "rm", "--force", "a2ad:local")
	s.compose("up", "--detach", "--wait") // which builds the image
	got, err := s.client("echo").Get(ctx, kept.TaskID, -1)
	if err != nil || got.State != a2a.StateCompleted {
		s.t.Errorf("after down and up, the task is %s, %v", got.Raw, err)
	}
}

// thirdReplica: one command adds it, and the proxy finds it.
func thirdReplica(s *stack) {
	before := s.compose("ps", "--quiet")
	s.compose("--profile", "third", "up", "--detach", "--wait")
	for id := range strings.Lines(before) {
		if !strings.Contains(s.compose("ps", "--quiet"), id) {
			s.t.Errorf("the container %s was replaced", strings.TrimSpace(id))
		}
	}
	s.compose("stop", "a2ad-1", "a2ad-2")
	ctx, cancel := context.WithTimeout(context.Background(), eventually)
	defer cancel()
	got, err := s.client("echo").Send(ctx, client.SendParams{Message: text("hello")})
	if err != nil || got.State != a2a.StateCompleted {
		s.t.Errorf("the third replica answers %s, %v", got.Raw, err)
	}
	s.compose("start", "a2ad-1", "a2ad-2")
	s.compose("--profile", "third", "rm", "--force", "--stop", "a2ad-3")
	s.healthy("a2ad-1", "a2ad-2")
}

// sameName: doctor and stats notice two servers of one name.
func sameName(s *stack) {
	s.compose("run", "--detach", "--no-deps", "--name", "twin", "a2ad-1")
	defer s.run("docker", "rm", "--force", "twin")
	s.until("the twin is noticed", func() bool {
		return strings.Contains(s.a2ad("stats"), "2 servers are named a2ad-1")
	})
	out, err := s.try("docker", "compose", "exec", "-T", "a2ad-1", "/a2ad", "doctor")
	if err == nil || !strings.Contains(out, "2 servers are named a2ad-1") {
		s.t.Errorf("doctor says %v\n%s", err, out)
	}
}
