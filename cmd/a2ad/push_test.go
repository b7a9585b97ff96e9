package main

import (
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/term"
)

// A webhook is not tried before its destination is: push ls shows the later of the two times.
func TestPushLsShowsTheDestinationsWait(t *testing.T) {
	t.Parallel()
	retry, wait := someTime.Add(time.Second), someTime.Add(time.Hour)
	for _, tt := range []struct {
		name string
		row  pushRow
		want string
	}{
		{"its own delay", pushRow{State: "active", NextAttemptAt: &wait, OpenUntil: &retry}, term.Moment(wait)},
		{"the destination's wait", pushRow{State: "active", NextAttemptAt: &retry, OpenUntil: &wait}, term.Moment(wait)},
		{"no breaker", pushRow{State: "active", NextAttemptAt: &retry}, term.Moment(retry)},
		{"a disabled destination", pushRow{State: "active", NextAttemptAt: &retry, DisabledAt: &retry}, "-"},
		{"dead", pushRow{State: "dead", NextAttemptAt: &retry}, "-"},
		{"deleted", pushRow{State: "active", NextAttemptAt: &retry, DeletedAt: &retry}, "-"},
		{"nothing to deliver", pushRow{State: "active"}, "-"},
	} {
		if got := tt.row.next(); got != tt.want {
			t.Errorf("%s: next try %s, want %s", tt.name, got, tt.want)
		}
	}
}
