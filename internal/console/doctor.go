package console

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Finding is the result of a check of the installation.
type Finding struct {
	Check string
	Level string // ok, note, warning or fault
	Text  string
	Fix   string // what to change; may be empty
}

// findings runs the checks of the installation one at a time, and keeps their results for a while: they open
// connections of their own.
type findings struct {
	check func(ctx context.Context) []Finding

	mu   sync.Mutex
	at   time.Time // guarded by mu
	list []Finding // guarded by mu
}

const (
	findingsLast = 10 * time.Second
	checksTake   = 30 * time.Second // at most
)

// levels are the levels of findings, the worst first.
var levels = []string{"fault", "warning", "note", "ok"}

// read returns the findings, the worst first, and when they were made. Who waits for the checks of somebody else gets
// their results.
func (f *findings) read(ctx context.Context) ([]Finding, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.at) < findingsLast {
		return f.list, f.at
	}
	ctx, cancel := context.WithTimeout(ctx, checksTake)
	defer cancel()
	list := f.check(ctx)
	slices.SortStableFunc(list, func(a, b Finding) int {
		return slices.Index(levels, a.Level) - slices.Index(levels, b.Level)
	})
	if ctx.Err() == nil { // else the viewer has left, or a check did not end: others check again
		f.list, f.at = list, time.Now()
	}
	return list, time.Now()
}

// doctorView is the page of findings.
type doctorView struct {
	Findings []Finding
	At       time.Time
	Faults   int
	Warnings int
}

func (c *Console) showDoctor(q *request) error {
	v := &doctorView{}
	v.Findings, v.At = c.findings.read(q.Context())
	for _, f := range v.Findings {
		switch f.Level {
		case "fault":
			v.Faults++
		case "warning":
			v.Warnings++
		}
	}
	return c.render(q, "doctor", "Doctor", v)
}
