package auth

import (
	"context"
	"net"
	"sync"
	"time"
)

const (
	failureEvery = time.Minute
	maxFailures  = 1000 // rows in a minute
)

// Failure is sign-ins that failed, in one minute, from one address and for one reason.
type Failure struct {
	Address string // empty: of many addresses, more than are told apart
	Reason  string
	KeyID   string // the one that all of them named, if they did
	Count   int
}

// Failures gathers sign-ins that failed, so that whoever tries without end fills no log. The zero
// value is not usable: Record is required.
type Failures struct {
	Record func(ctx context.Context, f Failure)

	mu  sync.Mutex
	all map[Failure]*Failure // guarded by mu; by address and reason
}

// Note counts a failure, if err is one. A request without credentials is none.
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

// Run records what was gathered, every minute and at the end.
func (f *Failures) Run(ctx context.Context) error {
	ticker := time.NewTicker(failureEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f.flush(ctx)
		case <-ctx.Done():
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysTimeout)
			defer cancel()
			f.flush(end)
			return nil
		}
	}
}

func (f *Failures) flush(ctx context.Context) {
	f.mu.Lock()
	all := f.all
	f.all = nil
	f.mu.Unlock()
	for _, row := range all {
		f.Record(ctx, *row)
	}
}
