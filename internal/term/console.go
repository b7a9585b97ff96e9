// Package term writes what a command shows to a person: tables that fit the terminal, colors,
// a transcript of a task, dates and sizes, and questions with a yes or a no.
//
// Text from clients and agents cannot steer the terminal: what Open returns escapes characters
// that hide or reorder others, and Printable, OneLine and Cell replace control characters.
package term

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
)

// Console is where a command reads and writes, and what is on the other end.
type Console struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	Terminal    bool // stdout is a terminal
	CanAsk      bool // stdin and stderr are terminals, so a question can be answered
	Color       bool // color what goes to stdout
	ColorStderr bool // color what goes to stderr

	Columns, Lines int // size of the terminal; 0: ask the terminal
}

// Open looks at the streams of the process. Plain turns colors off.
func Open(stdin io.Reader, stdout, stderr io.Writer, plain bool) Console {
	return Console{
		Stdin: stdin, Stdout: safe(stdout), Stderr: safe(stderr),
		Terminal:    isTerminal(stdout),
		CanAsk:      isTerminal(stdin) && isTerminal(stderr),
		Color:       isTerminal(stdout) && !plain,
		ColorStderr: isTerminal(stderr) && !plain,
	}
}

// isTerminal reports whether w is a terminal.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Paint returns the colors of stdout.
func (c *Console) Paint() Painter { return Painter(c.Color) }

// Note writes a line to stderr.
func (c *Console) Note(text string) { fmt.Fprintln(c.Stderr, text) }

// Width returns the number of columns of the terminal, or 0 if stdout is not one.
func (c *Console) Width() int {
	if c.Columns > 0 {
		return c.Columns
	}
	columns, _ := c.size()
	return columns
}

// height returns the number of lines of the terminal, or 0 if stdout is not one.
func (c *Console) height() int {
	if c.Lines > 0 {
		return c.Lines
	}
	_, lines := c.size()
	return lines
}

func (c *Console) size() (columns, lines int) {
	f, ok := fileOf(c.Stdout)
	if !ok || !c.Terminal {
		return 0, 0
	}
	return windowSize(f)
}

// NewPage clears the terminal and returns a console that drops what does not fit on it. One line
// is left for the cursor.
func (c *Console) NewPage() *Console {
	fmt.Fprint(c.Stdout, "\x1b[H\x1b[2J")
	page := *c
	page.Columns = c.Width()
	if lines := c.height(); lines > 1 {
		page.Stdout = &firstLines{c.Stdout, lines - 1}
	}
	return &page
}

// firstLines passes on a number of lines and drops the rest.
type firstLines struct {
	w    io.Writer
	left int
}

func (f *firstLines) Write(p []byte) (int, error) {
	end := 0
	for ; f.left > 0 && end < len(p); f.left-- {
		at := bytes.IndexByte(p[end:], '\n')
		if at < 0 {
			end = len(p)
			break
		}
		end += at + 1
	}
	_, err := f.w.Write(p[:end])
	return len(p), err
}

// Confirm asks a question on stderr and reports whether the answer is y or yes. If ctx ends first
// it returns the cause.
func (c *Console) Confirm(ctx context.Context, question string) (bool, error) {
	fmt.Fprint(c.Stderr, question+" [y/N] ")
	answer := make(chan string, 1)
	go func() { // a read from a terminal cannot be interrupted: it ends with the process
		word := ""
		fmt.Fscanln(c.Stdin, &word) //nolint:errcheck // no answer means no
		answer <- strings.ToLower(word)
	}()
	select {
	case word := <-answer:
		return word == "y" || word == "yes", nil
	case <-ctx.Done():
		fmt.Fprintln(c.Stderr)
		return false, context.Cause(ctx)
	}
}
