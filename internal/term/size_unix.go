//go:build unix

package term

import (
	"os"

	"golang.org/x/sys/unix"
)

// windowSize asks the terminal f for its size. It returns zeros if there is no answer.
func windowSize(f *os.File) (columns, lines int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}
