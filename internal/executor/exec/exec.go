// Package exec runs a command for each run of a task: any program that reads stdin and
// writes stdout can be an agent.
//
// # Input and output
//
// Stdin is the run object of package vocab on one line, or, with input text, the text
// parts of the new messages, joined by line breaks. Stdout is one event of package vocab
// per line, empty lines left out, or, with output text, the text of one artifact with
// the id "stdout-<n>" on turn n. Text beyond MaxLine goes into further chunks of it;
// bytes that are not UTF-8 become a file. Stderr goes to the log, bounded, line by line.
//
// # Ends
//
// A status event that ends the turn ends the run; the program may tidy up for Grace.
// Exit code 0 means done: completed, if no event said otherwise. 75 (EX_TEMPFAIL) and
// death by a signal are tried again. Every other code fails the task for good, with the
// end of stderr. A line that is not an event is InvalidAgentResponse.
//
// # Processes
//
// The command has no shell and a group of its own. When the run is over early (cancel,
// deadline, a fault in its output) the group gets SIGTERM and, after Grace, SIGKILL; what
// is left of it when the command has ended gets SIGKILL too. A process that has left the
// group and keeps stdout open is not waited for.
package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	osexec "os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/vocab"
)

// Input says what the command finds on stdin.
type Input string

// Output says what its stdout is.
type Output string

// The forms of input and output.
const (
	InputRun     Input  = "run"
	InputText    Input  = "text"
	OutputEvents Output = "events"
	OutputText   Output = "text"
)

// Config says what to run. Command is required, everything else has a default.
type Config struct {
	Command []string
	Input   Input  // default InputRun
	Output  Output // default OutputEvents
	Dir     string // default: that of the server
	Env     map[string]string
	// Environ is the environment of the server. The command sees PATH, HOME and LANG of
	// it, and Env: credentials of the server are not the agent's business. TRACEPARENT is set
	// for a run that has one.
	Environ   []string
	Grace     time.Duration // between SIGTERM and SIGKILL, and before SIGTERM behind the last event; default 2 s
	Lull      time.Duration // silence after which output is given up once the command has ended; default 1 s
	MaxLine   int           // bytes of a line or a part; default 1 MiB
	MaxOutput int           // bytes of stdout; default 64 MiB
	Log       *slog.Logger  // default: none
}

// Executor runs one command per run.
type Executor struct {
	c   Config
	env []string
}

// New returns an Executor. It starts nothing.
func New(c Config) (*Executor, error) {
	if len(c.Command) == 0 || c.Command[0] == "" {
		return nil, errors.New("exec: no command")
	}
	c.Input, c.Output = cmp.Or(c.Input, InputRun), cmp.Or(c.Output, OutputEvents)
	if c.Input != InputRun && c.Input != InputText || c.Output != OutputEvents && c.Output != OutputText {
		return nil, fmt.Errorf("exec: input %q, output %q", c.Input, c.Output)
	}
	c.Grace, c.Lull = cmp.Or(c.Grace, 2*time.Second), cmp.Or(c.Lull, time.Second)
	c.MaxLine, c.MaxOutput = cmp.Or(c.MaxLine, 1<<20), cmp.Or(c.MaxOutput, 64<<20)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Executor{c: c, env: environment(c.Environ, c.Env)}, nil
}

// environment never returns nil, which would mean the server's own environment.
func environment(server []string, own map[string]string) []string {
	env := []string{}
	for _, kv := range server {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "PATH", "HOME", "LANG":
			env = append(env, kv)
		}
	}
	for k, v := range own {
		env = append(env, k+"="+v)
	}
	return env
}

// Execute runs the command and yields what it reports. It returns when the command has
// ended and everything that belongs to it.
func (e *Executor) Execute(ctx context.Context, run executor.Run) iter.Seq2[a2a.Event, error] {
	return executor.Emit(ctx, func(emit func(a2a.Event) error) error { return e.run(ctx, &run, emit) })
}

// run starts the command, hands its output on and says how it ended.
func (e *Executor) run(ctx context.Context, run *executor.Run, emit func(a2a.Event) error) error {
	log := e.c.Log.With("task_id", run.Task.ID.String(), "agent", run.Agent, "epoch", run.Epoch)
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	// Behind the last event ctx may end at any time and means nothing to the command.
	detach := context.AfterFunc(ctx, end)
	defer detach()
	p, err := e.start(over, run, log)
	if err != nil {
		return err
	}
	sink := e.sink(run, emit, func() { detach() })
	outputErr := sink.read(p.stdout)
	turnOver := errors.Is(outputErr, errTurnOver)
	switch {
	case turnOver:
		t := time.AfterFunc(e.c.Grace, end)
		defer t.Stop()
	case outputErr != nil:
		end() // nothing that follows can count
	}
	state, waitErr := p.finish()
	switch {
	case turnOver:
		if over.Err() == nil && (waitErr != nil || !state.Success()) {
			log.Warn("command ended badly after its last event", "state", state, "err", waitErr)
		}
		return nil
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case outputErr != nil:
		return outputErr
	case waitErr != nil:
		return fmt.Errorf("wait for %s: %w", e.c.Command[0], waitErr)
	}
	if err := e.verdict(state, p.stderr.tail()); err != nil {
		return err
	}
	return sink.done()
}

func (e *Executor) start(ctx context.Context, run *executor.Run, log *slog.Logger) (*process, error) {
	cmd := osexec.Command(e.c.Command[0], e.c.Command[1:]...)
	cmd.Dir, cmd.Env = e.c.Dir, e.env
	if run.Traceparent != "" { // in front: of two values the last one counts, and that is the operator's
		cmd.Env = append([]string{"TRACEPARENT=" + string(run.Traceparent)}, e.env...)
	}
	p, err := startProcess(ctx, cmd, e.input(run), e.c, log)
	if err == nil {
		return p, nil
	}
	err = fmt.Errorf("start %s: %w", e.c.Command[0], err)
	for _, passing := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ETXTBSY} {
		if errors.Is(err, passing) {
			return nil, err
		}
	}
	return nil, executor.Permanent(err)
}

func (e *Executor) input(run *executor.Run) []byte {
	if e.c.Input == InputText {
		var texts []string
		for _, m := range run.Messages {
			for _, part := range m.Parts {
				if part.Kind == a2a.PartText {
					texts = append(texts, part.Text)
				}
			}
		}
		return []byte(strings.Join(texts, "\n"))
	}
	return append(vocab.AppendRun(nil, vocab.RunOf(run)), '\n')
}

// exitAgain is EX_TEMPFAIL of sysexits.h: not now, but perhaps later.
const exitAgain = 75

// verdict is what the exit of the command says about the run.
func (e *Executor) verdict(state *os.ProcessState, tail string) error {
	if state.Success() {
		return nil
	}
	err := fmt.Errorf("%s: %s", e.c.Command[0], state) // "exit status 1", "signal: killed"
	if tail != "" {
		err = fmt.Errorf("%w: %s", err, tail)
	}
	if code := state.ExitCode(); code == exitAgain || code < 0 {
		return err
	}
	return executor.Permanent(err)
}

// sink makes events of stdout.
type sink interface {
	// read reads stdout to its end. It returns errTurnOver when no event may follow.
	read(stdout *output) error
	// done yields what is left to say after an exit with code 0.
	done() error
}

var errTurnOver = errors.New("a status ended the turn")

func (e *Executor) sink(run *executor.Run, emit func(a2a.Event) error, last func()) sink {
	if e.c.Output == OutputText {
		return &textSink{emit: emit, id: "stdout-" + vocab.Turn(run), maxPart: e.c.MaxLine, maxOutput: e.c.MaxOutput}
	}
	return &eventSink{emit: emit, last: last, maxLine: e.c.MaxLine, maxOutput: e.c.MaxOutput, decoder: vocab.NewDecoder(run)}
}

// invalid is the error of a run whose program does not keep to the rules.
func invalid(format string, args ...any) error {
	return executor.Permanent(a2a.Errorf(a2a.CodeInvalidAgentResponse, format, args...))
}

func completed() a2a.Event {
	return &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}}
}
