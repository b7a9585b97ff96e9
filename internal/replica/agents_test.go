package replica

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/executor/echo"
)

func TestUnchangedAgentsKeepTheirExecutors(t *testing.T) {
	t.Parallel()
	command := func(args ...string) agents.File {
		return agents.File{Agent: a2a.Agent{Name: "a"},
			Executor: agents.Exec{Command: args, Input: "run", Output: "events"}}
	}
	e := &executors{cfg: &config.Config{}}
	var set agentSet
	build := func(files ...agents.File) agentSet {
		t.Helper()
		next, err := e.build(set, files)
		if err != nil {
			t.Fatal(err)
		}
		added, changed, removed := set.compare(next)
		t.Logf("added %v, changed %v, removed %v", added, changed, removed)
		set = next
		return next
	}
	first := build(command("x"))
	described := command("x")
	described.Agent.Card.Description = "new"
	second := build(described)
	if first[0].executor != second[0].executor {
		t.Error("another description of the agent has made another executor")
	}
	if third := build(command("y")); third[0].executor == second[0].executor {
		t.Error("another command has the same executor")
	}
	if _, err := e.build(set, []agents.File{command()}); err == nil || set[0].executor == nil {
		t.Error("an executor that cannot be made is no error, or has changed the agents")
	}
	fourth := build(agents.File{Agent: a2a.Agent{Name: "a"}, Executor: agents.Echo{}})
	if fourth[0].executor != (echo.Executor{}) {
		t.Errorf("the executor is %T", fourth[0].executor)
	}
}

func TestDigestChangesWithTheKeyFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ca.pem")
	spec := agents.HTTP{Remote: agents.Remote{TLS: agents.TLS{CA: path}}}
	var sums [][32]byte
	for _, text := range []string{"", "a", "b"} {
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		sums = append(sums, digest(spec))
	}
	if sums[0] == sums[1] || sums[1] == sums[2] || digest(spec) != sums[2] {
		t.Errorf("digests %x", sums)
	}
}

func TestCompareNamesWhatChanged(t *testing.T) {
	t.Parallel()
	load := func(description string) agents.File {
		path := filepath.Join(t.TempDir(), "a.yaml")
		text := "name: a\ndescription: " + description +
			"\nskills: [{id: s, input_schema: {type: object, pattern: x, format: uri}}]\nexecutor: {echo: {}}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		files, err := agents.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		return files[0]
	}
	named := func(name string) agent { return agent{File: agents.File{Agent: a2a.Agent{Name: name}}} }
	old := agentSet{{File: load("d")}, named("b")}
	for _, tc := range []struct {
		next                    agentSet
		added, changed, removed []string
	}{
		{agentSet{{File: load("d")}, named("b")}, nil, nil, nil},
		{agentSet{{File: load("e")}, named("c")}, []string{"c"}, []string{"a"}, []string{"b"}},
	} {
		added, changed, removed := old.compare(tc.next)
		got, want := [][]string{added, changed, removed}, [][]string{tc.added, tc.changed, tc.removed}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestHangupOfTheTerminalStopsTheServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	hangups, stopped := make(chan os.Signal, 1), false
	r := &Replica{options: Options{Reload: Reload{
		Hangups: hangups, Orphaned: func() bool { return true }, Stop: func() { stopped = true },
	}}}
	hangups <- syscall.SIGHUP
	if err := r.followFiles(ctx); err != nil || !stopped || ctx.Err() != nil {
		t.Errorf("stopped %t, %v, %v", stopped, err, ctx.Err())
	}
}
