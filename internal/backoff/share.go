package backoff

import "time"

// Share is for work that repeats and may come to take long, such as a search whose cost grows with
// what a database cannot clean up: it spaces it out, so that it takes a twentieth of the
// time, also if each run is cut off. The zero value is ready. It is not safe for concurrent use.
type Share struct{ last time.Duration }

const share = 20

// Wait returns how long to wait behind a run that took so long: between the least and the most. A run that is
// slow by itself may have waited for a disk: it counts as the one before it.
func (s *Share) Wait(took, least, most time.Duration) time.Duration {
	wait := min(max(least, share*min(took, s.last)), most)
	s.last = took
	return wait
}
