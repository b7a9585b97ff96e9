package doctor

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/term"
)

// upgradeTime is how long servers may have different versions: an upgrade replaces one after the other.
const upgradeTime = time.Hour

// servers checks what the heartbeats of the servers say.
func (d *Doctor) servers(ctx context.Context, s *store.Store) {
	known, full, err := s.Operate.Fullness(ctx)
	if err != nil {
		d.Findings.warn("servers", "", "the heartbeats of the servers could not be read: %s", err)
		return
	}
	var servers []operate.Presence
	for _, p := range known {
		if p.Server() && p.InTouch() {
			servers = append(servers, p)
		}
	}
	before, f := len(d.Findings), &d.Findings
	checkVersions(servers, f)
	checkClocks(servers, f)
	checkSlots(full, f)
	checkCommands(servers, f)
	if len(servers) > 0 {
		f.okUnless(before, "servers", "%s in touch, of version %s", term.Count(len(servers), "server"),
			servers[0].Version)
	}
}

// checkVersions notes an upgrade that has not ended: all servers have been up for a while, and differ in their version.
func checkVersions(servers []operate.Presence, f *Findings) {
	by, youngest := map[string][]string{}, time.Time{}
	for _, p := range servers {
		by[p.Version] = append(by[p.Version], p.Name)
		if p.StartedAt.After(youngest) {
			youngest = p.StartedAt
		}
	}
	if len(by) < 2 || servers[0].SeenAt.Sub(youngest) < upgradeTime {
		return
	}
	var list []string
	for version, names := range by {
		list = append(list, version+" ("+strings.Join(names, ", ")+")")
	}
	slices.Sort(list)
	f.note("servers", "Upgrade the servers that have the old version.",
		"the servers have had different versions for more than an hour: %s", strings.Join(list, ", "))
}

// checkClocks warns of servers whose clock differs from that of the database.
func checkClocks(servers []operate.Presence, f *Findings) {
	for _, p := range servers {
		direction := "fast"
		if p.ClockAhead < 0 {
			direction = "slow"
		}
		if p.ClockAhead.Abs() > time.Second {
			f.warn("clock", "Let "+cmp.Or(p.Host, "its machine")+" and the database follow NTP.",
				"compared with the database, the clock of the server %s is %s %s", p.Name,
				term.Duration(p.ClockAhead.Abs()), direction)
		}
	}
}

// checkSlots warns of a limit that is reached: tasks wait although their agents could work.
func checkSlots(full *operate.Saturation, f *Findings) {
	if full == nil {
		return
	}
	f.warn("slots", "Raise A2AD_WORKERS, or start more servers.",
		"all %d slots of the servers are in use, and tasks wait for one: %d are due, the oldest for %s",
		full.Slots, full.Due, term.Duration(full.Oldest))
}

// checkCommands warns of servers on which no further command may run although tasks wait for one.
func checkCommands(servers []operate.Presence, f *Findings) {
	for i := range servers {
		if p := &servers[i]; p.CommandsFull() {
			f.warn("slots", "Raise A2AD_COMMANDS if its machine has CPU and memory left, or start more servers.",
				"all %d slots for commands of the server %s are in use, and tasks have waited for one for %s",
				p.Commands, p.Name, term.Duration(p.CommandsWait))
		}
	}
}
