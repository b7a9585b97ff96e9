package backoff

import "time"

// Share limits periodic work to at most 5 % of the time, even if each run is interrupted. It is for work that may
// become slow, such as a search whose cost grows with rows that a database cannot clean up. The zero value is ready. It
// is not safe for concurrent use.
type Share struct{ last time.Duration }

const share = 20

// Wait returns how long to wait after a run that took this long, between least and most. A single slow run may have
// waited for a disk, so it counts as the previous one.
func (s *Share) Wait(took, least, most time.Duration) time.Duration {
	wait := min(max(least, share*min(took, s.last)), most)
	s.last = took
	return wait
}
