package a2a

import "time"

// Schedule makes tasks of an agent at the times that it names. A zero CatchUp or Jitter is none.
type Schedule struct {
	Name     string // unique in its agent
	Cron     string // as package cron reads it
	Timezone string // name in the IANA database
	Message  Message
	Tenant   string // of the tasks
	Owner    string
	Overlap  Overlap
	CatchUp  time.Duration // how late a tick may start its task
	Jitter   time.Duration // each task starts up to this much later, which spreads the load
	Paused   bool
}

// Overlap says what a tick does while the task of the tick before it has not ended.
type Overlap uint8

// The default leaves the tick out. A queued tick starts when that task has ended; at most one is queued.
const (
	OverlapSkip Overlap = iota
	OverlapQueue
	OverlapAllow
)

// Overlaps are the words for each Overlap.
var Overlaps = []string{"skip", "queue", "allow"}

func (o Overlap) String() string { return Overlaps[o] }
