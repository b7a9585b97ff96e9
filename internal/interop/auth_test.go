package interop

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2aclient"
)

// The client authenticates as the card says: it has keys by the names of the schemes and does the rest itself.
func TestClientAuthenticatesAsTheCardSays(t *testing.T) {
	t.Parallel()
	at := newGuardedServer(t)
	alice, bob := at.key(t, "alice", "tasks:read,tasks:write"), at.key(t, "bob", "tasks:read,tasks:write")

	var task *a2a.Task
	for _, scheme := range []a2a.SecuritySchemeName{"bearer", "apiKey"} {
		p := at.dialAs(t, scheme, alice)
		task = p.send(message("hello"))
		checkState(t, task, a2a.TaskStateCompleted)
		checkSame(t, "tasks/get", p.get(task.ID), task)
		checkStream(t, p.stream(message("hello")).rest())
	}

	other := at.dialAs(t, "bearer", bob)
	for name, err := range map[string]error{
		"get":    errorOf(other.GetTask(testContext(t), &a2a.TaskQueryParams{ID: task.ID})),
		"cancel": errorOf(other.CancelTask(testContext(t), &a2a.TaskIDParams{ID: task.ID})),
		"message": errorOf(other.SendMessage(testContext(t),
			&a2a.MessageSendParams{Message: reply(task, "hello")})),
		"resubscribe": firstError(other.ResubscribeToTask(testContext(t), &a2a.TaskIDParams{ID: task.ID})),
	} {
		if !errors.Is(err, a2a.ErrTaskNotFound) {
			t.Errorf("%s with the key of another owner: %v, want %v", name, err, a2a.ErrTaskNotFound)
		}
	}
	if n := other.list(&a2a.ListTasksRequest{}).TotalSize; n != 0 {
		t.Errorf("another owner's list has %d tasks", n)
	}

	reader := at.dialAs(t, "bearer", at.key(t, "alice", "tasks:read"))
	checkSame(t, "tasks/get with another key of the owner", reader.get(task.ID), task)
	for who, want := range map[*peer]string{
		reader:                           "403", // has no write scope
		at.dialAs(t, "bearer", "no key"): "401",
		at.dialAs(t, "other", alice):     "401", // has no key for a scheme of the card, and sends none
	} {
		_, err := who.SendMessage(testContext(t), &a2a.MessageSendParams{Message: message("hello")})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("send: %v, want HTTP status %s", err, want)
		}
		err = firstError(who.SendStreamingMessage(testContext(t), &a2a.MessageSendParams{Message: message("hello")}))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("stream: %v, want HTTP status %s", err, want)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

// guardedServer is a server as an operator runs it: serve, with agent files and API keys.
type guardedServer struct {
	*address
	database string
}

func newGuardedServer(t *testing.T) *guardedServer {
	t.Helper()
	database := newDatabase(t)
	if _, err := run(testContext(t), "migrate", "up", "--database-url", database); err != nil {
		t.Fatal(err)
	}
	agents := t.TempDir()
	const echo = "name: echo\ndescription: Says what it is told.\nexecutor: {echo: {}}\n"
	if err := os.WriteFile(filepath.Join(agents, "echo.yaml"), []byte(echo), 0o600); err != nil {
		t.Fatal(err)
	}
	return &guardedServer{newAddressWith(t, "serve", "--database-url", database, "--agents", agents), database}
}

// key creates an API key as an operator does.
func (g *guardedServer) key(t *testing.T, owner, scopes string) string {
	t.Helper()
	out, err := run(testContext(t), "apikey", "create", "--database-url", g.database, "--tenant", "t", "--owner", owner,
		"--scopes", scopes, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var made struct{ Key string }
	if err := json.Unmarshal(out, &made); err != nil || made.Key == "" {
		t.Fatalf("apikey create says %s (%v)", out, err)
	}
	return made.Key
}

// session puts every call into the session that holds the keys.
type session struct {
	a2aclient.PassthroughInterceptor
}

func (session) Before(ctx context.Context, _ *a2aclient.Request) (context.Context, error) {
	return a2aclient.WithSessionID(ctx, "test"), nil
}

func (g *guardedServer) dialAs(t *testing.T, scheme a2a.SecuritySchemeName, key string) *peer {
	t.Helper()
	keys := a2aclient.NewInMemoryCredentialsStore()
	keys.Set("test", scheme, a2aclient.AuthCredential(key))
	return dialAt(t, g.url(), echoAgent,
		a2aclient.WithInterceptors(session{}, &a2aclient.AuthInterceptor{Service: keys}))
}
