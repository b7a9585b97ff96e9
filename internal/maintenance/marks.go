package maintenance

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

const (
	// wholeEvery is how often all tasks are read again. This finds tasks that were missed, for
	// instance because they were stored long after they had got their ids.
	wholeEvery = 24 * time.Hour
	// wholeSoon replaces wholeEvery while more tasks must be read again than marks keep.
	wholeSoon = time.Hour
	mostLater = 50_000
)

// marks are what a Retirer knows about the tasks that it has read, so that it need not read them again. For each age
// at which a rule removes anything, they have the last task, in the order of ids, that was that old. They also have
// the tasks before it that were not old enough, because they ended late or have not ended. The database decides about
// ages; the local clock only says when to read again.
type marks struct {
	rules  map[string]a2a.Retention
	others a2a.Retention
	began  time.Time // of the last scan from the start; zero: there was none
	levels []level   // the youngest first
	later  map[a2a.ID]time.Time
	missed bool // later was full

	imported   a2a.ID    // imported tasks up to this one were read in this scan of them
	importedAt time.Time // of the last whole scan of imported tasks; zero: there was none
}

// importedDue reports whether imported tasks must be read. Their ids do not tell when they were created, so all of them
// are read each time.
func (m *marks) importedDue() bool {
	return len(m.levels) > 0 && (m.importedAt.IsZero() || time.Since(m.importedAt) >= wholeEvery)
}

// scannedImported records a step of the scan of imported tasks, and reports whether the scan goes on.
func (m *marks) scannedImported(got *tasks.Retired, now time.Time) bool {
	if m.imported = got.Next; m.imported.IsZero() {
		m.importedAt = now
		return false
	}
	return true
}

// level is an age at which rules remove something.
type level struct {
	age   time.Duration
	after a2a.ID // tasks up to this one were read when they had that age
	fresh bool   // after is not set yet
}

// setRules sets the current rules. It starts a new scan if they have changed, or if the last full scan is too old.
func (m *marks) setRules(rules map[string]a2a.Retention, others a2a.Retention) {
	every := wholeEvery
	if m.missed {
		every = wholeSoon
	}
	if !m.began.IsZero() && time.Since(m.began) < every && others == m.others && maps.Equal(rules, m.rules) {
		return
	}
	*m = marks{rules: maps.Clone(rules), others: others, began: time.Now(), later: make(map[a2a.ID]time.Time)}
	for i, age := range ages(rules, others) {
		m.levels = append(m.levels, level{age: age, fresh: i > 0})
	}
}

func (m *marks) rule(agent string) a2a.Retention {
	if rule, ok := m.rules[agent]; ok {
		return rule
	}
	return m.others
}

// scanned records a step of the scan of a level. The scan of the youngest level from the start also
// reads the tasks of all other ages. So the other scans begin where that one found younger tasks.
func (m *marks) scanned(i int, got *tasks.Retired, now time.Time) {
	for j := range m.levels {
		if l := &m.levels[j]; l.fresh {
			l.after, l.fresh = db.IDAt(got.Now.Add(-l.age)), false
		}
	}
	if !got.At.IsZero() {
		m.levels[i].after = got.At
	}
	for i := range got.Left {
		m.note(&got.Left[i], now)
	}
}

// readAgain notes what happened to tasks that were due.
func (m *marks) readAgain(ids []a2a.ID, got *tasks.Retired, now time.Time) {
	for _, id := range ids {
		delete(m.later, id)
	}
	for i := range got.Left {
		m.note(&got.Left[i], now)
	}
}

// due returns the tasks that must be read again now.
func (m *marks) due(now time.Time) (ids []a2a.ID) {
	for id, at := range m.later {
		if !at.After(now) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b a2a.ID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// note notes when to read a remaining task again, unless a scan reads it at that age.
func (m *marks) note(e *tasks.Ended, now time.Time) {
	delete(m.later, e.ID)
	var first time.Time
	for _, age := range acts(m.rule(e.Agent), e) {
		at := now.Add(age) // if it ends now
		if e.State.Terminal() {
			at = now.Add(age - e.For)
		}
		if m.passed(age, e.ID) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	switch {
	case e.Kept:
		first = now
	case first.IsZero():
		return
	}
	if len(m.later) >= mostLater {
		m.missed = true
		return
	}
	m.later[e.ID] = first
}

// passed reports whether the scan of an age has passed a task.
func (m *marks) passed(age time.Duration, id a2a.ID) bool {
	i := slices.IndexFunc(m.levels, func(l level) bool { return l.age == age })
	return i >= 0 && bytes.Compare(id[:], m.levels[i].after[:]) <= 0
}

// acts returns the ages, since its end, at which a rule removes something of a remaining task.
func acts(r a2a.Retention, e *tasks.Ended) (list []time.Duration) {
	add := func(ages ...time.Duration) {
		for _, age := range ages {
			if age > 0 {
				list = append(list, age)
			}
		}
	}
	if e.State.Terminal() {
		add(r.Of(e.State))
	} else {
		add(r.Completed, r.Failed, r.Canceled, r.Rejected)
	}
	if !e.Pruned || !e.State.Terminal() {
		add(r.Log)
	}
	return list
}

// ages returns the ages at which any rule removes anything, the youngest first.
func ages(rules map[string]a2a.Retention, others a2a.Retention) (list []time.Duration) {
	for _, r := range append(slices.Collect(maps.Values(rules)), others) {
		for _, age := range []time.Duration{r.Completed, r.Failed, r.Canceled, r.Rejected, r.Log} {
			if age > 0 {
				list = append(list, age)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
