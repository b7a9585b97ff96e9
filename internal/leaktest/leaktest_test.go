package leaktest

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { Main(m) }

func TestGoroutineThatEndsLateIsNoLeak(t *testing.T) {
	t.Parallel()
	tries := 0
	err := left(time.Hour, func(...goleak.Option) error {
		if tries++; tries < 100 {
			return errors.New("it has not ended yet")
		}
		return nil
	})
	if err != nil || tries != 100 {
		t.Errorf("after %d tries: %v", tries, err)
	}
}

func TestGoroutineThatStaysIsALeak(t *testing.T) { // not parallel: it sees goroutines of all tests
	end := make(chan struct{})
	defer close(end)
	go func() { <-end }()
	if err := left(0, goleak.Find); err == nil {
		t.Error("a goroutine remains, and is not found")
	}
}
