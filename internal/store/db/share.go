package db

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// patience is how reads with a context wait for a connection of the pool of requests.
type patience int

const (
	hurried  patience = iota // for AcquireTimeout
	patient                  // as long as the context lasts
	ofStream                 // the same, for connections of Reads
)

type patienceKey struct{}

func patienceOf(ctx context.Context) patience {
	p, _ := ctx.Value(patienceKey{}).(patience)
	return p
}

// Patient returns a context whose reads wait for a connection as long as it lasts, where others are refused after
// AcquireTimeout. It is for reads that must not be refused any more. Whoever uses it bounds how many wait.
func Patient(ctx context.Context) context.Context {
	return context.WithValue(ctx, patienceKey{}, patient)
}

// PatientOfStream is Patient for the reads that begin a stream. They wait for a connection that Reads may use, so that
// many requests do not delay them. StreamConns is how many of them can read at once.
func PatientOfStream(ctx context.Context) context.Context {
	return context.WithValue(ctx, patienceKey{}, ofStream)
}

// StreamConns is how many connections streams use at once.
func (s *DB) StreamConns() int { return max(int(s.api.conns.Config().MaxConns)/2, 1) }

// patiently returns a context for a wait of at most limit, or of as long as ctx lasts if it is patient.
func patiently(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if patienceOf(ctx) != hurried {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}

// share is a part of the pool of requests. Each read waits for a part first, and then briefly for a connection. So one
// kind of read leaves connections to the others, however many of it wait.
type share struct {
	*semaphore.Weighted
	of    *share // the larger share of which this one is a part; nil: the pool
	waits *waits // of the whole pool
}

// openShares divides the pool of requests.
func (s *DB) openShares() {
	api := int64(s.api.conns.Config().MaxConns)
	s.calls = &share{semaphore.NewWeighted(max(api-max(api/4, 1), 1)), nil, &s.waits}
	s.reads = &share{semaphore.NewWeighted(int64(s.StreamConns())), nil, &s.waits}
	s.searches = s.reads
	if api > 2 { // otherwise callers would have no connection left
		s.searches = &share{semaphore.NewWeighted(max(api/4, 1)), s.calls, &s.waits}
	}
}

// enter waits for a connection's part of a share. A nil share is the whole pool.
func (s *DB) enter(ctx context.Context, part *share) (leave func(), err error) {
	if part == nil {
		return func() {}, nil
	}
	wait, cancel := patiently(ctx, s.api.wait)
	defer cancel()
	if err := part.enter(wait); err != nil {
		return nil, busy(ctx, wait, err)
	}
	return part.leave, nil
}

func (p *share) enter(ctx context.Context) error {
	if err := p.acquire(ctx); err != nil {
		return err
	}
	if p.of == nil {
		return nil
	}
	err := p.of.enter(ctx)
	if err != nil {
		p.Release(1)
	}
	return err
}

func (p *share) leave() {
	if p.of != nil {
		p.of.leave()
	}
	p.Release(1)
}

func (p *share) acquire(ctx context.Context) error {
	if p.TryAcquire(1) {
		return nil
	}
	start := time.Now()
	err := p.Acquire(ctx, 1)
	p.waits.all.Add(1)
	p.waits.time.Add(int64(time.Since(start)))
	if err != nil {
		p.waits.canceled.Add(1)
	}
	return err
}

// waits counts waits for shares.
type waits struct{ all, time, canceled atomic.Int64 } // time is in nanoseconds

func (w *waits) addTo(p *PoolStat) {
	p.Waits += w.all.Load()
	p.WaitTime += time.Duration(w.time.Load())
	p.Canceled += w.canceled.Load()
}
