package budget

import (
	"slices"
	"time"
)

// arrivalPart is the most that arriving bodies may hold together, so that there is always room to
// work on complete ones.
func (b *Budget) arrivalPart() int64 { return b.main / 2 }

// arrivalShare is the most that the arriving bodies of one owner may hold.
func (b *Budget) arrivalShare() int64 { return b.arrivalPart() / 4 * 3 }

// overShare reports whether a draw would exceed its owner's share, whatever others hold.
func (b *Budget) overShare(d *draw) bool {
	a := d.l.account
	return a.held+d.n > b.Share() || d.arrival && a.arriving+d.n > b.arrivalShare()
}

// lacks returns how many bytes others must give back before a draw fits.
func (b *Budget) lacks(d *draw) int64 {
	short := b.used + d.n - b.main
	if d.arrival {
		short = max(short, b.arriving+d.n-b.arrivalPart())
	}
	return max(short, 0)
}

// pump grants the draws that fit: first those of the owner who holds least, and the oldest draw of
// one owner. A draw that does not fit is skipped. After half of its wait only owners who hold less
// may pass it, so that large draws do not starve.
func (b *Budget) pump() {
	now := time.Now()
	for {
		var best, starves *draw
		for _, d := range b.waiting {
			held := d.l.account.held
			switch {
			case b.overShare(d), starves != nil && held >= starves.l.account.held:
			case b.lacks(d) > 0:
				if starves == nil && now.Sub(d.since) > b.cfg.Wait/2 {
					starves = d
				}
			case best == nil || held < best.l.account.held:
				best = d
			}
		}
		if best == nil {
			return
		}
		b.remove(best)
		b.grant(best)
		close(best.done)
	}
}

// sweep grants draws and evicts bodies for them. Stalled bodies are found here, because nothing
// happens when a body stalls.
func (b *Budget) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Sub(b.sweptAt) < tick/2 {
		return // another waiting draw has just done it
	}
	b.sweptAt = now
	b.pump()
	for _, d := range slices.Clone(b.waiting) {
		if d.l.wait == d {
			b.makeRoom(d, now)
		}
	}
}

func (b *Budget) grant(d *draw) {
	l := d.l
	b.used += d.n
	l.held += d.n
	l.account.held += d.n
	if d.arrival {
		b.arriving += d.n
		l.arriving += d.n
		l.account.arriving += d.n
		b.arrivals[l] = true
	}
}

// put takes back bytes of a lease.
func (b *Budget) put(l *Lease, n int64, arrival bool) {
	b.used -= n
	l.held -= n
	l.account.held -= n
	if !arrival {
		return
	}
	b.arriving -= n
	l.arriving -= n
	l.account.arriving -= n
	if l.evicted {
		b.freeing -= n
	}
	if l.arriving == 0 {
		delete(b.arrivals, l)
	}
}

// makeRoom evicts arriving bodies for a waiting draw: stalled ones, and those that wait for memory
// themselves while no one else could continue. It evicts those of the owner who holds most first.
func (b *Budget) makeRoom(d *draw, now time.Time) {
	for {
		short := b.lacks(d)
		if b.overShare(d) {
			short = max(short, 1)
		}
		if short -= b.freeing; short <= 0 {
			return
		}
		v := b.victim(d, now)
		if v == nil {
			return
		}
		b.evict(v)
	}
}

// victim returns the body to evict for d, or nil.
func (b *Budget) victim(d *draw, now time.Time) *Lease {
	var best *Lease
	for l := range b.arrivals {
		if l.evicted || !b.mayEvict(l, d, now) {
			continue
		}
		if best == nil || l.account.arriving > best.account.arriving ||
			l.account == best.account && l.movedAt().Before(best.movedAt()) {
			best = l
		}
	}
	return best
}

// mayEvict reports whether a body may be evicted for d: a stalled one, unless its owner holds less
// than d's owner, and one that started to wait for memory after d. Of two bodies that wait for each
// other the older one continues.
func (b *Budget) mayEvict(l *Lease, d *draw, now time.Time) bool {
	if l == d.l || b.overShare(d) && l.account != d.l.account {
		return false // it would not help
	}
	if w := l.wait; w != nil {
		return w.arrival && d.arrival && w.since.After(d.since) && now.Sub(d.since) >= b.cfg.Stall/4 &&
			l.account.arriving >= d.l.account.arriving
	}
	return now.Sub(l.movedAt()) >= b.cfg.Stall && l.account.held >= d.l.account.held
}

// evict makes a lease give back what it holds for an arriving body.
func (b *Budget) evict(l *Lease) {
	l.evicted = true
	b.freeing += l.arriving
	b.stats.Refused[RefusedEvicted]++
	if d := l.wait; d != nil {
		b.remove(d)
		d.err = errEvicted
		close(d.done)
	}
	if l.onEvict != nil {
		l.onEvict()
	}
}
