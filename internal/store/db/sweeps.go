package db

import (
	"sync/atomic"
	"time"
)

// Sweep is what removes rows that are old.
type Sweep int

// Sweeps.
const (
	SweepOfTasks Sweep = iota
	SweepOfLogs
	SweepOfAttempts
	SweepOfActions
	SweepOfTicks
	SweepOfUsage
	SweepOfJobs
	sweepKinds
)

// Sweeps are all of them.
var Sweeps = [...]Sweep{
	SweepOfTasks, SweepOfLogs, SweepOfAttempts, SweepOfActions, SweepOfTicks, SweepOfUsage, SweepOfJobs,
}

func (s Sweep) String() string {
	return [...]string{"tasks", "logs", "attempts", "audit_log", "schedule_ticks", "usage_days", "jobs"}[s]
}

// Swept says what a sweep has removed since this process began.
type Swept struct {
	Removed uint64    // tasks, logs or rows
	At      time.Time // its last successful step, by the local clock; zero: none
}

type sweepCounter struct {
	removed atomic.Uint64
	at      atomic.Int64 // Unix nanoseconds
}

// CountSwept counts a successful step of a sweep.
func (s *DB) CountSwept(of Sweep, removed int) {
	s.sweeps[of].removed.Add(uint64(removed))
	s.sweeps[of].at.Store(time.Now().UnixNano())
}

// Swept returns what a sweep of this process has removed.
func (s *DB) Swept(of Sweep) (out Swept) {
	out.Removed = s.sweeps[of].removed.Load()
	if at := s.sweeps[of].at.Load(); at != 0 {
		out.At = time.Unix(0, at)
	}
	return out
}
