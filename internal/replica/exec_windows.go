package replica

import (
	"errors"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/executor"
)

// makeExec refuses the agent. A command must end with all processes that it started, and gets a signal before that.
// Windows has neither process groups nor signals.
func (*executors) makeExec(agents.Exec) (executor.Executor, error) {
	return nil, errors.New("executor exec does not work on Windows: use the executor http or pull, or run a2ad on Linux")
}
