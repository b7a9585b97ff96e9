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

// readable returns an error whose text can be read: that of a nil pointer may panic.
func readable(err error) (sound error) {
	if err == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			sound = &panicError{fmt.Sprintf("(%T).Error: %v", err, p), debug.Stack()}
		}
	}()
	_ = err.Error()
	return err
}

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
		value, err := fn()
		r = result{value, readable(err)}
	}()
	return done
}
