package auth

import (
	"context"
	"net"
	"sync"
	"time"
)

const (
	failureEvery = time.Minute
	maxFailures  = 1000 // rows per minute
)

// Failure is a group of failed sign-ins within one minute, from one address and for one reason.
type Failure struct {
	Address string // empty: the addresses beyond maxFailures, together
	Reason  string
	KeyID   string // the key id, if all of them named the same
	Count   int
}

// Failures groups failed sign-ins, so that endless guessing does not fill the log. The zero value
// is not usable: Record is required.
type Failures struct {
	Record func(ctx context.Context, f Failure)

	mu  sync.Mutex
	all map[Failure]*Failure // guarded by mu; by address and reason
}

// Note counts err if it is a failed sign-in. A request without credentials is none.
func (f *Failures) Note(remoteAddr string, err *Error) {
	if err.reason == noCredential {
		return
	}
	host, _, splitErr := net.SplitHostPort(remoteAddr)
	if splitErr != nil {
		host = remoteAddr
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = make(map[Failure]*Failure)
	}
	at := Failure{Address: host, Reason: err.reason}
	row := f.all[at]
	if row == nil && len(f.all) >= maxFailures {
		at.Address = ""
		row = f.all[at]
	}
	if row == nil {
		row = &Failure{Address: at.Address, Reason: at.Reason, KeyID: err.keyID}
		f.all[at] = row
	}
	if row.Count++; row.KeyID != err.keyID {
		row.KeyID = ""
	}
}

// Run records the gathered failures every minute, and at the end.
func (f *Failures) Run(ctx context.Context) error {
	ticker := time.NewTicker(failureEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f.flush(ctx)
		case <-ctx.Done():
			f.flush(ctx)
			return nil
		}
	}
}

// flush outlives ctx: the failures that it removed from the group must not be lost if the server stops in the meantime.
func (f *Failures) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysTimeout)
	defer cancel()
	f.mu.Lock()
	all := f.all
	f.all = nil
	f.mu.Unlock()
	for _, row := range all {
		f.Record(ctx, *row)
	}
}
