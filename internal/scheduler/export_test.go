package scheduler

import "time"

// SetLongest sets the longest wait between two reads. Call it before Run.
func (s *Scheduler) SetLongest(d time.Duration) { s.longest = d }
