//go:build unix

package exec

import (
	"bufio"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Bounds of what a command may write to the log.
const (
	maxLogLine = 256 // bytes of a line
	logBurst   = 100 // lines at once
	logRate    = 20  // lines a second after that
	tailBytes  = 1024

	maxLateStderr = 1 << 20 // bytes after the command has ended
)

// stderr logs the lines of a command and remembers the last ones.
type stderr struct {
	log *slog.Logger

	mu   sync.Mutex
	last []byte // guarded by mu: the end of what was written
}

// read reads to the end. Lines beyond the permitted rate are counted and not logged.
func (s *stderr) read(o *output) {
	budget, refilled, dropped := float64(logBurst), time.Now(), 0
	for {
		line, err := s.line(o.buf)
		now := time.Now()
		budget = min(logBurst, budget+now.Sub(refilled).Seconds()*logRate)
		refilled = now
		switch {
		case line == "":
		case budget < 1:
			dropped++
		default:
			budget--
			s.log.Info("agent stderr", "line", line)
		}
		if err != nil {
			break
		}
	}
	if dropped > 0 {
		s.log.Warn("agent stderr lines not logged", "count", dropped)
	}
}

// line reads the next line and returns its beginning.
func (s *stderr) line(buf *bufio.Reader) (string, error) {
	var head []byte
	for {
		piece, err := buf.ReadSlice('\n')
		s.remember(piece)
		head = append(head, piece[:min(len(piece), maxLogLine+2-len(head))]...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		text := strings.TrimRight(string(head), "\r\n")
		if len(text) > maxLogLine {
			text = text[:maxLogLine] + "…"
		}
		return strings.ToValidUTF8(text, "\uFFFD"), err
	}
}

func (s *stderr) remember(piece []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = append(s.last, piece...)
	if n := len(s.last) - tailBytes; n > 0 {
		s.last = append(s.last[:0], s.last[n:]...)
	}
}

// tail returns the end of what was written.
func (s *stderr) tail() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(s.last), "\uFFFD"))
}
