package exec

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	osexec "os/exec"
	"sync"
	"syscall"
	"time"
)

// process is a started command. One goroutine feeds stdin, one reads stderr, one waits
// for the exit and one for the reason to end it early; finish waits for all of them.
type process struct {
	cmd    *osexec.Cmd
	stdout *output
	stderr *stderr
	exited chan struct{} // closed when the command has ended; on Linux it is not reaped yet then
	wg     sync.WaitGroup
}

// startProcess starts cmd with input on its stdin. When ctx is done before the command
// has ended, its group gets SIGTERM and after c.Grace SIGKILL.
func startProcess(ctx context.Context, cmd *osexec.Cmd, input []byte, c Config, log *slog.Logger) (*process, error) {
	p := &process{cmd: cmd, stderr: &stderr{log: log}, exited: make(chan struct{})}
	ours, err := startPiped(cmd)
	if err != nil {
		return nil, err
	}
	stdin, stderr := ours[0], ours[2]
	p.stdout = newOutput(ours[1], c.Lull, c.MaxOutput)
	p.wg.Go(func() {
		_, _ = stdin.Write(input) // a command need not read it
		stdin.Close()
	})
	p.wg.Go(func() {
		p.stderr.read(newOutput(stderr, c.Lull, maxLateStderr))
		stderr.Close()
	})
	p.wg.Go(func() {
		awaitExit(cmd)
		deadline := time.Now().Add(c.Lull)
		for _, f := range ours {
			_ = f.SetDeadline(deadline) // of a process that left the group and holds the other end
		}
		close(p.exited)
	})
	p.wg.Go(func() { p.stopWhenDone(ctx, c.Grace) })
	return p, nil
}

// startPiped starts cmd and returns our ends of its stdin, stdout and stderr. They are
// pipes of our own because those of os/exec cannot be given up on.
func startPiped(cmd *osexec.Cmd) (ours [3]*os.File, err error) {
	var theirs [3]*os.File
	defer func() {
		for i := range theirs {
			theirs[i].Close() // a nil file returns an error and nothing else
			if err != nil {
				ours[i].Close()
			}
		}
	}()
	for i := range theirs {
		r, w, err := os.Pipe()
		if err != nil {
			return ours, err
		}
		if theirs[i], ours[i] = w, r; i == 0 {
			theirs[i], ours[i] = r, w
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return ours, cmd.Start()
}

// signal goes to the whole group. The command is not reaped before finish has waited for
// everyone who calls this, so its id cannot be another's by now.
func (p *process) signal(s syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, s) }

func (p *process) stopWhenDone(ctx context.Context, grace time.Duration) {
	select {
	case <-p.exited:
		return
	case <-ctx.Done():
	}
	p.signal(syscall.SIGTERM)
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-p.exited:
	case <-t.C:
		p.signal(syscall.SIGKILL)
	}
}

// finish waits for the end of the command and of what is left of its group. What it
// still writes is thrown away, so that a command that tidies up does not block.
func (p *process) finish() (*os.ProcessState, error) {
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(io.Discard, p.stdout.file) })
	<-p.exited
	p.signal(syscall.SIGKILL)
	p.stdout.file.Close()
	wg.Wait()
	p.wg.Wait()
	if p.cmd.ProcessState != nil {
		return p.cmd.ProcessState, nil
	}
	err := p.cmd.Wait()
	if p.cmd.ProcessState != nil {
		return p.cmd.ProcessState, nil // an exit code other than 0 is not an error here
	}
	return nil, err
}

// output is what a command writes to one pipe.
type output struct {
	file  *os.File
	buf   *bufio.Reader // of Read
	lull  time.Duration
	ended bool // the deadline was met once, so the command has ended
	again bool // the deadline was moved and nothing came since
	late  int  // bytes that may still come then
}

func newOutput(f *os.File, lull time.Duration, late int) *output {
	o := &output{file: f, lull: lull, late: late}
	o.buf = bufio.NewReaderSize(o, 64<<10)
	return o
}

var (
	errLineTooLong = errors.New("line too long")
	errAbandoned   = errors.New("the command has ended and something else keeps its output open")
)

// Read ends with errAbandoned when nothing came for a lull after the command had ended,
// or too much. The deadline alone would not do: it is set at the exit, and what is in the
// pipe then may be read much later when its reader is slow.
func (o *output) Read(b []byte) (int, error) {
	n, err := o.file.Read(b)
	for n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		if o.again {
			n, err = o.rest(b)
			break
		}
		o.ended, o.again = true, true
		if err := o.file.SetReadDeadline(time.Now().Add(o.lull)); err != nil {
			return 0, err
		}
		n, err = o.file.Read(b)
	}
	o.again = false
	if o.ended {
		o.late -= n
	}
	if o.late < 0 {
		return 0, errAbandoned
	}
	return n, err
}

// rest reads what is in the pipe now. On a busy machine the read before may have met its
// deadline on the way there, and then it has not looked.
func (o *output) rest(b []byte) (n int, err error) {
	conn, err := o.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	refused := conn.Control(func(fd uintptr) {
		for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
			n, err = syscall.Read(int(fd), b)
		}
	})
	if refused != nil {
		return 0, refused
	}
	switch {
	case n > 0:
		return n, nil
	case err == nil:
		return 0, io.EOF
	case errors.Is(err, syscall.EAGAIN):
		return 0, errAbandoned
	}
	return 0, err
}

// line returns the next line without its end, in memory of its own. The error is io.EOF
// with the last one.
func (o *output) line(most int) ([]byte, error) {
	var line []byte
	for {
		piece, err := o.buf.ReadSlice('\n')
		line = append(line, piece...)
		if len(bytes.TrimRight(line, "\r\n")) > most {
			return nil, errLineTooLong
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), err
		}
	}
}

// read appends what there is to dst.
func (o *output) read(dst *[]byte) (int, error) {
	if _, err := o.buf.Peek(1); err != nil {
		return 0, err
	}
	b, _ := o.buf.Peek(o.buf.Buffered())
	*dst = append(*dst, b...)
	return o.buf.Discard(len(b))
}
