package a2ad

import (
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
)

// here is the directory of this package. The names of functions do not say enough: a closure of this package that the
// compiler moves into its caller gets the name of that one.
var here = sync.OnceValue(func() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
})

// callSite returns the line of the agent's code that called this package, such as agents/trip.go:17.
func callSite() string {
	var pcs [256]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if filepath.Dir(f.File) != here() || strings.HasSuffix(f.File, "_test.go") {
			return site(f.File, f.Line)
		}
		if !more {
			return ""
		}
	}
}

// functionSite returns the line in which an agent's function begins.
func functionSite(fn AgentFunc) string {
	f := runtime.FuncForPC(reflect.ValueOf(fn).Pointer())
	if f == nil {
		return ""
	}
	return site(f.FileLine(f.Entry()))
}

// site leaves out most of the path, which clients may see in the reason of a failed task.
func site(file string, line int) string {
	dir, name := filepath.Split(file)
	return fmt.Sprintf("%s:%d", filepath.ToSlash(filepath.Join(filepath.Base(dir), name)), line)
}
