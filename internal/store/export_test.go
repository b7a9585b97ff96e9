package store

import "time"

// Rescanned makes a claimer one that has scanned its queues from the start just now.
func Rescanned(c *Claimer) { setRescan(c, time.Now().Add(time.Hour)) }

// RescanDue makes the next claim scan from the start.
func RescanDue(c *Claimer) { setRescan(c, time.Time{}) }

func setRescan(c *Claimer, at time.Time) {
	for agent, f := range c.floors {
		f.rescans = at
		c.floors[agent] = f
	}
}
