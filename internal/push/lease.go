package push

import (
	"context"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
)

// hold is the lease of one delivery as its process knows it: held for certain while held
// says so, and given up by canceling the request when it is not.
type hold struct {
	due  *store.Delivery
	now  func() time.Time
	ttl  time.Duration
	lose func() // cancels the request

	mu    sync.Mutex
	asked time.Time   // guarded by mu; when the lease that is held was asked for
	cut   *time.Timer // guarded by mu; calls lose at the end
}

// newHold returns the hold of a delivery whose lease was asked for at asked.
func newHold(due *store.Delivery, now func() time.Time, asked time.Time, ttl time.Duration, lose func()) *hold {
	h := &hold{due: due, now: now, ttl: ttl, lose: lose, asked: asked}
	h.cut = time.AfterFunc(h.end().Sub(now()), lose)
	return h
}

// leaseMargin is how much earlier than the database, at most, a deliverer takes a lease for
// over: clocks differ in their rates.
const leaseMargin = time.Second

// end is when the hold is over by the clock of the process. The caller holds mu, or has h for
// itself.
func (h *hold) end() time.Time {
	return h.asked.Add(h.ttl - min(leaseMargin, h.ttl/6))
}

// held reports, whenever it is asked, whether the lease is still held for certain. It goes by
// the monotonic clock and by the one on the wall: the first may stand still while the machine
// is suspended, the second may be set.
func (h *hold) held() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, end := h.now(), h.end()
	return t.Before(end) && t.Round(0).Before(end.Round(0))
}

// old reports whether it is time to renew.
func (h *hold) old() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now().Sub(h.asked) >= h.ttl/3
}

// renewed says that the lease asked for at asked was granted.
func (h *hold) renewed(asked time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = asked
	if h.cut.Stop() { // else the request is canceled already, or over
		h.cut.Reset(h.end().Sub(h.now()))
	}
}

// release ends the hold without a call of lose.
func (h *hold) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut.Stop()
}

// renew extends the leases of requests that take long, until done is closed. So a lease can be
// short, for the case that its process dies, however long a request may take. When the
// database cannot be asked the requests are cut off as their leases run out.
func (d *Deliverer) renew(ctx context.Context, done <-chan struct{}) {
	ticker := time.NewTicker(d.cfg.Lease / 6)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			d.renewOld(ctx)
		case <-done:
			return
		}
	}
}

func (d *Deliverer) renewOld(ctx context.Context) {
	old := map[a2a.ID]*hold{}
	var due []*store.Delivery
	d.mu.Lock()
	for h := range d.holds {
		if h.old() {
			old[h.due.Row] = h
			due = append(due, h.due)
		}
	}
	d.mu.Unlock()
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Lease/3)
	defer cancel()
	asked := d.cfg.Now()
	rows, err := d.cfg.Store.RenewPushes(ctx, due, d.cfg.Lease)
	if err != nil {
		d.cfg.Logger.WarnContext(ctx, "renew webhooks", "err", err)
		return
	}
	for _, row := range rows {
		old[row].renewed(asked)
	}
}
