//go:build unix

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

// process is a started command. One goroutine writes stdin, one reads stderr, one waits for the exit and one for a
// reason to end it early; finish waits for all of them.
type process struct {
	cmd    *osexec.Cmd
	stdout *output
	stderr *stderr
	exited chan struct{} // closed when the command has ended; on Linux, before it is reaped
	wg     sync.WaitGroup
}

// startProcess starts cmd with input on its stdin. If ctx is done before the command has ended, its group gets
// SIGTERM, and SIGKILL after c.Grace.
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
			_ = f.SetDeadline(deadline) // a process that left the group may keep the other end open
		}
		close(p.exited)
	})
	p.wg.Go(func() { p.stopWhenDone(ctx, c.Grace) })
	return p, nil
}

// startPiped starts cmd and returns the server's ends of its stdin, stdout and stderr. The pipes of os/exec cannot be
// used, because reads from them cannot be given up.
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

// signal sends a signal to the whole group. The command is reaped only after finish has waited for all callers of
// signal, so its id cannot belong to another process.
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

// finish waits for the end of the command, and kills the rest of its group. Further output is discarded, so that a
// command that cleans up does not block.
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
	ended bool // the deadline has passed once, so the command has ended
	again bool // the deadline was extended, and nothing was read since
	late  int  // bytes that may still be read after the end
}

func newOutput(f *os.File, lull time.Duration, late int) *output {
	o := &output{file: f, lull: lull, late: late}
	o.buf = bufio.NewReaderSize(o, 64<<10)
	return o
}

var (
	errLineTooLong = errors.New("line too long")
	errAbandoned   = errors.New("the command has ended, and another process keeps its output open")
)

// Read returns errAbandoned if nothing was written for a lull after the command had ended, or too much. The deadline
// is not enough: it is set at the exit, and a slow reader may read the rest of the pipe much later.
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

// rest reads what is in the pipe now. On a busy machine the deadline of the previous read may have passed before it
// read anything.
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

// line returns the next line without its line break, in new memory. The error is io.EOF with the last line.
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

// read appends to dst what can be read now, and waits if that is nothing.
func (o *output) read(dst *[]byte) (int, error) {
	if _, err := o.buf.Peek(1); err != nil {
		return 0, err
	}
	b, _ := o.buf.Peek(o.buf.Buffered())
	*dst = append(*dst, b...)
	return o.buf.Discard(len(b))
}
