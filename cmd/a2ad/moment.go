package main

import (
	"errors"
	"time"
)

// Moment is a time on the command line: a date, a time, or how long ago it was.
type Moment struct{ time.Time }

// UnmarshalText reads 2026-11-20, 2026-11-20T14:00:00Z or 24h.
func (m *Moment) UnmarshalText(text []byte) error {
	if ago, err := time.ParseDuration(string(text)); err == nil && ago >= 0 {
		m.Time = time.Now().Add(-ago)
		return nil
	}
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z", "2006-01-02 15:04:05", "2006-01-02",
	} {
		if t, err := time.Parse(layout, string(text)); err == nil {
			m.Time = t
			return nil
		}
	}
	return errors.New("not a time: write 2026-11-20, 2026-11-20T14:00:00Z, or 24h for a day ago")
}
