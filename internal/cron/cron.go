// Package cron computes when the ticks of a schedule are: five cron fields or a name like @daily, in a time zone.
//
// It promises what cron(8) does when clocks change. A schedule of fixed hours ticks once for each time of day that it
// names: right after the gap if the clocks skip that time, and at the first occurrence if they repeat it. A schedule
// of every hour ticks by elapsed time: it neither catches up nor pauses. The package knows nothing of agents and of
// what a tick does.
package cron

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // zones on machines without them, such as a container from scratch

	"github.com/netresearch/go-cron"
)

// Schedule says when ticks are. It is safe for concurrent use.
type Schedule struct {
	zone   *time.Location
	clock  cron.Schedule // in UTC, which stands for the local time of day: UTC has no gaps
	hourly bool          // the field of hours begins with *
}

// names are the schedules that have a name.
var names = []string{"@hourly", "@daily", "@weekly", "@monthly", "@yearly"}

var errNever = errors.New("no such day exists, so it would never tick")

// A day of the month and a day of the week are alternatives if both are given, as in cron.
var parser = cron.MustNewParser(
	cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)

// Parse reads five fields (minute, hour, day of month, month, day of week) or one of @hourly, @daily, @weekly,
// @monthly and @yearly.
func Parse(text string, zone *time.Location) (*Schedule, error) {
	fields := strings.Fields(text)
	named := len(fields) == 1 && slices.Contains(names, fields[0])
	if !named && len(fields) != 5 {
		return nil, fmt.Errorf("write five fields, like 30 8 * * 1-5, or %s", strings.Join(names, ", "))
	}
	clock, err := parser.Parse(strings.Join(fields, " "))
	if err != nil {
		return nil, err
	}
	if spec, ok := clock.(*cron.SpecSchedule); ok {
		spec.Location = time.UTC
	}
	if clock.Next(time.Unix(0, 0).UTC()).IsZero() {
		return nil, errNever
	}
	return &Schedule{zone: zone, clock: clock, hourly: fields[0] == "@hourly" || !named && fields[1][0] == '*'}, nil
}

// Zone returns a time zone by its name in the IANA database, such as Europe/Berlin, or UTC.
func Zone(name string) (*time.Location, error) {
	if name == "" || name == "Local" {
		return nil, fmt.Errorf("unknown time zone %q", name)
	}
	return time.LoadLocation(name)
}

// Next returns the first tick after a time, in UTC. Ticks are whole minutes.
func (s *Schedule) Next(after time.Time) time.Time {
	after = after.UTC()
	if s.hourly {
		return s.nextElapsed(after)
	}
	for clock := s.wall(after); ; {
		clock = s.clock.Next(clock)
		if clock.IsZero() { // a day that is more than five years away
			return clock
		}
		if at := s.first(clock); at.After(after) {
			return at
		}
	}
}

// nextElapsed searches each period between two changes of the clocks by itself.
func (s *Schedule) nextElapsed(after time.Time) time.Time {
	from := s.wall(after)
	for {
		clock := s.clock.Next(from)
		if clock.IsZero() {
			return clock
		}
		_, end := after.In(s.zone).ZoneBounds()
		at := clock.Add(-s.offset(after))
		if end.IsZero() || at.Before(end) {
			return at
		}
		after = end.UTC()
		from = s.wall(after).Add(-time.Nanosecond)
	}
}

// first returns the time at which the clocks first show a time of day, or at which they skip it.
func (s *Schedule) first(clock time.Time) time.Time {
	before, later := s.offset(clock.Add(-24*time.Hour)), s.offset(clock.Add(24*time.Hour))
	for _, offset := range []time.Duration{max(before, later), min(before, later)} { // the larger one is earlier
		if at := clock.Add(-offset); s.offset(at) == offset {
			return at
		}
	}
	start, _ := clock.Add(-before).In(s.zone).ZoneBounds()
	return start.UTC()
}

// wall returns what the clocks show, as if it were UTC.
func (s *Schedule) wall(at time.Time) time.Time { return at.Add(s.offset(at)) }

func (s *Schedule) offset(at time.Time) time.Duration {
	_, seconds := at.In(s.zone).Zone()
	return time.Duration(seconds) * time.Second
}
