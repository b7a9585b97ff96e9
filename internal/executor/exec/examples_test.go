//go:build unix

package exec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/executor/exec"
)

func TestExampleAgents(t *testing.T) {
	t.Parallel()
	files, err := agents.Load("../../../examples/agents")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"words": "3\n", "upper": "ONE TWO THREE"}
	for _, f := range files {
		spec, ok := f.Executor.(agents.Exec)
		if !ok {
			continue
		}
		got, err := collect(t, exec.Config{
			Command: spec.Command, Input: exec.Input(spec.Input), Output: exec.Output(spec.Output), Dir: spec.Dir,
			Env: spec.Env,
		}, runOf(message("one two three")))
		if diff := cmp.Diff([]a2a.Event{stdout("stdout-1", want[f.Agent.Name], false, true),
			status(a2a.StateCompleted)}, got); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", f.Path, err, diff)
		}
		delete(want, f.Agent.Name)
	}
	if len(want) > 0 {
		t.Errorf("no agents %v", want)
	}
}
