package webhooks

import "time"

// PollDone makes a store one that has just polled for due webhooks from the start: its next claim begins at the floor.
func PollDone(s *Store) { setPoll(s, time.Now().Add(time.Hour)) }

// PollDue makes the next claim of webhooks poll from the start.
func PollDue(s *Store) { setPoll(s, time.Time{}) }

func setPoll(s *Store, at time.Time) {
	s.pushes.mu.Lock()
	defer s.pushes.mu.Unlock()
	s.pushes.whole.Next = at
}
