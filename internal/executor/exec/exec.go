//go:build unix

// Package exec runs a command for each run of a task: any program that reads stdin and writes stdout can be an agent.
//
// # Input and output
//
// Stdin is the run object of package vocab on one line. With input text, it is the text parts of the new messages,
// joined by line breaks. Stdout is one event of package vocab per line; empty lines are ignored. With output text,
// stdout is the text of one artifact with the id "stdout-<n>" on turn n. Text beyond MaxLine becomes further chunks
// of the artifact, and bytes that are not UTF-8 become a file. Stderr is logged line by line, within limits.
//
// # Ends
//
// A status event that ends the turn ends the run; the program may clean up for Grace. Exit code 0 means completed,
// unless an event said otherwise. After exit code 75 (EX_TEMPFAIL) and death by a signal the run is retried. Every
// other code fails the task, with the end of stderr. A line that is not an event is InvalidAgentResponse.
//
// # Processes
//
// The command runs without a shell, in a process group of its own. If the run ends early (cancel, deadline, a fault
// in its output) the group gets SIGTERM and, after Grace, SIGKILL. Processes of the group that outlive the command
// get SIGKILL too. A process that has left the group and keeps stdout open is not waited for.
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
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/vocab"
)

// Input says what the command reads from stdin.
type Input string

// Output says what the command writes to stdout.
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
	Dir     string // default: the server's
	Env     map[string]string
	// Environ is the environment of the server. The command gets only PATH, HOME and LANG of it, and Env, so that it
	// does not see credentials of the server. TRACEPARENT is set for a run that has one.
	Environ   []string
	Grace     time.Duration // between SIGTERM and SIGKILL, and before SIGTERM after the last event; default 2 s
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

// Execute runs the command and yields its events. It returns when the command and its process group have ended.
func (e *Executor) Execute(ctx context.Context, run executor.Run) iter.Seq2[a2a.Event, error] {
	return executor.Emit(ctx, func(emit func(a2a.Event) error) error { return e.run(ctx, &run, emit) })
}

// run starts the command, emits its output and returns how it ended.
func (e *Executor) run(ctx context.Context, run *executor.Run, emit func(a2a.Event) error) error {
	log := e.c.Log.With("task_id", run.Task.ID.String(), "agent", run.Agent, "epoch", run.Epoch)
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	// After the last event ctx may end at any time, and that must not stop the command.
	detach := context.AfterFunc(ctx, end)
	defer detach()
	p, err := e.start(running, run, log)
	if err != nil {
		return err
	}
	sink := e.sink(run, emit, func() { detach() })
	outputErr := sink.read(p.stdout)
	turnEnded := errors.Is(outputErr, errTurnEnded)
	switch {
	case turnEnded:
		t := time.AfterFunc(e.c.Grace, end)
		defer t.Stop()
	case outputErr != nil:
		end() // further output would be ignored
	}
	state, waitErr := p.finish()
	switch {
	case turnEnded:
		if running.Err() == nil && (waitErr != nil || !state.Success()) {
			log.Warn("command failed after its last event", "state", state, "err", waitErr)
		}
		return nil
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case outputErr != nil:
		return outputErr
	case waitErr != nil:
		return fmt.Errorf("wait for %s: %w", e.c.Command[0], waitErr)
	}
	if err := e.exitError(state, p.stderr.tail()); err != nil {
		return err
	}
	return sink.done()
}

func (e *Executor) start(ctx context.Context, run *executor.Run, log *slog.Logger) (*process, error) {
	cmd := osexec.Command(e.c.Command[0], e.c.Command[1:]...)
	cmd.Dir, cmd.Env = e.c.Dir, e.env
	if run.Traceparent != "" { // in front, because the last of two values applies, and that is the operator's
		cmd.Env = append([]string{"TRACEPARENT=" + string(run.Traceparent)}, e.env...)
	}
	p, err := startProcess(ctx, cmd, e.input(run), e.c, log)
	if err == nil {
		return p, nil
	}
	err = fmt.Errorf("start %s: %w", e.c.Command[0], err)
	return nil, executor.Unreachable(err)
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

// exitAgain is EX_TEMPFAIL of sysexits.h: another attempt may succeed.
const exitAgain = 75

// exitError returns the error of the run for the exit of the command, or nil.
func (e *Executor) exitError(state *os.ProcessState, tail string) error {
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

// sink turns stdout into events.
type sink interface {
	// read reads stdout to its end. It returns errTurnEnded when no event may follow.
	read(stdout *output) error
	// done emits the last events after an exit with code 0.
	done() error
}

var errTurnEnded = errors.New("a status ended the turn")

func (e *Executor) sink(run *executor.Run, emit func(a2a.Event) error, last func()) sink {
	if e.c.Output == OutputText {
		return &textSink{
			emit: emit, id: "stdout-" + vocab.Turn(run), maxPart: e.c.MaxLine, maxOutput: e.c.MaxOutput,
		}
	}
	return &eventSink{
		emit: emit, last: last, decoder: vocab.NewDecoder(run), maxLine: e.c.MaxLine, maxOutput: e.c.MaxOutput,
	}
}

func completed() a2a.Event {
	return &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}}
}
