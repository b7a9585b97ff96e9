package a2ad

import (
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
)

// place is where a call was made. The line is looked up only if an error needs it.
type place struct {
	pcs [24]uintptr
	n   int
}

func callers() *place {
	p := &place{}
	p.n = runtime.Callers(2, p.pcs[:])
	return p
}

// line returns the innermost line of the agent's code, such as agents/trip.go:17, or an empty text.
func (p *place) line() string {
	if p.n == 0 {
		return ""
	}
	own := ownDirectory()
	frames := runtime.CallersFrames(p.pcs[:p.n])
	for {
		f, more := frames.Next()
		if filepath.Dir(f.File) != own || strings.HasSuffix(f.File, "_test.go") {
			return shortLine(f.File, f.Line)
		}
		if !more {
			return ""
		}
	}
}

// ownDirectory returns the directory of this package. The name of a function would not do: a closure that the compiler
// moves into its caller gets the name of that one.
func ownDirectory() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}

// lineOf returns the line in which an agent's function begins.
func lineOf(fn AgentFunc) string {
	f := runtime.FuncForPC(reflect.ValueOf(fn).Pointer())
	if f == nil {
		return ""
	}
	return shortLine(f.FileLine(f.Entry()))
}

// shortLine leaves out most of the path.
func shortLine(file string, line int) string {
	if strings.HasPrefix(file, "runtime/") || strings.Contains(file, "/runtime/asm_") {
		return "" // the bottom of a goroutine of this package
	}
	dir, name := filepath.Split(file)
	return fmt.Sprintf("%s:%d", filepath.ToSlash(filepath.Join(filepath.Base(dir), name)), line)
}
