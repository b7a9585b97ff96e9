//go:build unix

package replica

import (
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/exec"
)

func (e *executors) makeExec(spec agents.Exec) (executor.Executor, error) {
	return exec.New(exec.Config{
		Command: spec.Command, Input: exec.Input(spec.Input), Output: exec.Output(spec.Output), Dir: spec.Dir,
		Env: spec.Env, Environ: e.environ, Log: e.log, MaxOutput: spec.MaxOutput,
	})
}
