package term

import (
	"os"

	"golang.org/x/sys/windows"
)

// windowSize asks the terminal f for its size. It returns zeros if there is no answer.
func windowSize(f *os.File) (columns, lines int) {
	var info windows.ConsoleScreenBufferInfo
	if err := windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &info); err != nil {
		return 0, 0
	}
	w := info.Window
	return int(w.Right-w.Left) + 1, int(w.Bottom-w.Top) + 1
}
