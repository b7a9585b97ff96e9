package attempt_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/attempt"
)

func TestTimersCallUntilTheyAreStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var timers attempt.Timers
		calls := make(chan string, 10)
		timers.After(time.Hour, func() { calls <- "late" })
		timers.After(time.Second, func() { calls <- "early" })
		time.Sleep(time.Minute)
		timers.Stop()
		timers.After(0, func() { calls <- "after the stop" })
		time.Sleep(2 * time.Hour)
		if len(calls) != 1 || <-calls != "early" {
			t.Error("want one call, from the timer that fired before the stop")
		}
	})
}
