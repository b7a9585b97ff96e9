package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/store"
)

const (
	// connectAgain is how often a starting server tries to use its database, and sayAgain how often it says that it still cannot.
	connectAgain = 500 * time.Millisecond
	sayAgain     = 30 * time.Second
)

// errStoppedWaiting says that the server was told to stop before its database could be used.
var errStoppedWaiting = errors.New("stopped before the database could be used")

// connect opens the database, and everything that needs it. A database that cannot be used now, since it is away, or its schema
// is not there yet, or it refuses the login, is waited for: the operator repairs that without a2ad, which says meanwhile on all
// listeners that it is not ready. The end of told is the signal to stop; then, and when it fails, everything is closed.
func (r *replica) connect(ctx, told context.Context) (err error) {
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	err = r.openDatabase(told)
	if err != nil && mayHeal(err) && told.Err() == nil {
		err = r.awaitDatabase(told, err)
	}
	if err != nil {
		return err
	}
	r.openWork()
	return r.openAPI(ctx)
}

// awaitDatabase tries until the database can be used, answering on all listeners that it cannot.
func (r *replica) awaitDatabase(ctx context.Context, err error) error {
	where := []any{"replica", r.name, "api", r.api.Addr().String()}
	if r.admin != nil {
		where = append(where, "admin", r.admin.Addr().String())
	}
	var why atomic.Pointer[error]
	why.Store(&err)
	stop := r.answerMeanwhile(&why)
	defer stop()
	var said time.Time
	tick := time.NewTicker(connectAgain)
	defer tick.Stop()
	for text := ""; ; {
		if err.Error() != text || time.Since(said) > sayAgain {
			text, said = err.Error(), time.Now()
			r.logger.WarnContext(ctx, "waiting for the database", append(where, "err", err)...)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errStoppedWaiting
		}
		if err = r.openDatabase(ctx); err == nil || !mayHeal(err) {
			return err
		}
		why.Store(&err)
	}
}

// openDatabase connects, checks and reads what the server cannot start without. If it fails nothing is left open.
func (r *replica) openDatabase(ctx context.Context) error {
	err := r.openStore(ctx)
	if err == nil {
		err = r.checkDatabase(ctx)
	}
	if err == nil {
		err = r.loadKeys(ctx)
	}
	if err != nil && r.store != nil {
		r.store.Close()
		r.store = nil
	}
	return err
}

// mayHeal reports whether an error of the start can end while the server runs with the settings that it has.
func mayHeal(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) || a2a.CodeOf(err) == a2a.CodeUnavailable || errors.Is(err, store.ErrUnusable)
}

// answerMeanwhile answers on the listeners until stop is called: the process lives, and is not ready.
func (r *replica) answerMeanwhile(why *atomic.Pointer[error]) (stop func()) {
	admin := &rpc.Admin{Timeout: r.cfg.ReadyTimeout, Checks: []rpc.Check{{Name: "database", Test: func(context.Context) error { return *why.Load() }}}}
	var stops []func()
	if r.admin != nil {
		stops = append(stops, borrow(r.admin, nil, admin.Handler()))
	}
	stops = append(stops, borrow(r.api, r.tlsConfig(), rpc.Starting()))
	if r.grpc != nil {
		stops = append(stops, borrow(r.grpc, r.tlsConfig(), rpc.Starting())) // to a client of gRPC a 503 is UNAVAILABLE
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// borrow serves h on a listener until stop is called, and leaves it open for another server.
func borrow(l net.Listener, secure *tls.Config, h http.Handler) (stop func()) {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 5 * time.Second, TLSConfig: secure, Protocols: &protocols}
	var serving sync.WaitGroup
	serving.Go(func() {
		if secure != nil {
			srv.ServeTLS(borrowed{l}, "", "") //nolint:errcheck // it ends with stop
			return
		}
		srv.Serve(borrowed{l}) //nolint:errcheck // as above
	})
	return func() {
		srv.Close()
		serving.Wait()
		setDeadline(l, time.Time{})
	}
}

// borrowed is a listener that stays open when its server closes it.
type borrowed struct{ net.Listener }

// Close ends the Accept under way.
func (b borrowed) Close() error {
	setDeadline(b.Listener, time.Unix(1, 0))
	return nil
}

func setDeadline(l net.Listener, t time.Time) {
	if d, ok := l.(interface{ SetDeadline(t time.Time) error }); ok {
		d.SetDeadline(t) //nolint:errcheck // a listener that is closed needs none
	}
}
