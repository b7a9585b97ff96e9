package a2ad

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// panicError is the error of a function that panicked.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

var errGoexit = errors.New("the function called runtime.Goexit")

// result is what a function of the agent returned.
type result struct {
	value any
	err   error
}

// start calls a function of the agent in a goroutine of its own, and returns a channel with what it returned. A panic,
// or runtime.Goexit, is an error of that function alone.
func start(fn func() (any, error)) <-chan result {
	done := make(chan result, 1)
	go func() {
		r := result{err: errGoexit}
		defer func() {
			if p := recover(); p != nil {
				r = result{err: &panicError{p, debug.Stack()}}
			}
			done <- r
		}()
		r.value, r.err = fn()
	}()
	return done
}
