package replica

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
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

const (
	retryConnect = 500 * time.Millisecond // how often a starting server tries its database
	repeatLog    = 30 * time.Second       // how often it logs that it still cannot use it
)

// ErrStopped says that the server had to stop before it could use its database.
var ErrStopped = errors.New("stopped before the database could be used")

// Connect opens the database and every part that needs it.
//
// It waits for a database that is unreachable, has no schema yet, or refuses the login: the
// operator can repair that while all listeners answer that the server is not ready. stopSignal ends when
// the server must stop. On an error everything is closed.
func (r *Replica) Connect(ctx, stopSignal context.Context) (err error) {
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	err = r.useDatabase(stopSignal)
	if err != nil && mayHeal(err) && stopSignal.Err() == nil {
		err = r.awaitDatabase(stopSignal, err)
	}
	if err != nil {
		return err
	}
	return r.openParts(ctx)
}

// openParts makes the parts that need the database, each after those that it uses.
func (r *Replica) openParts(ctx context.Context) (err error) {
	if r.credentials, err = r.openCredentials(); err != nil {
		return err
	}
	if err = r.delivery.open(ctx, r); err != nil {
		return err
	}
	r.work = r.openWork(ctx)
	r.api, err = r.openAPI(ctx)
	return err
}

// useDatabase connects, checks the schema and reads the keys. After an error nothing is left open.
func (r *Replica) useDatabase(ctx context.Context) error {
	d, err := r.openDatabase(ctx, func(agent string) (tasks.Slot, bool) { return r.work.pool.Reserve(agent) })
	if err != nil {
		return err
	}
	err = r.checkDatabase(ctx, d)
	if err == nil {
		r.delivery, err = r.loadKeys(ctx, d)
	}
	if err != nil {
		d.store.Close()
		return err
	}
	r.database = d
	return nil
}

// mayHeal reports whether an error of the start can end while the server keeps its settings.
func mayHeal(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) || a2a.CodeOf(err) == a2a.CodeUnavailable || errors.Is(err, db.ErrUnusable)
}

// awaitDatabase tries until the database can be used. Meanwhile all listeners answer that it cannot.
func (r *Replica) awaitDatabase(ctx context.Context, err error) error {
	var why atomic.Pointer[error]
	why.Store(&err)
	stop := r.answerMeanwhile(&why)
	defer stop()
	var logged time.Time
	tick := time.NewTicker(retryConnect)
	defer tick.Stop()
	for text := ""; ; {
		if err.Error() != text || time.Since(logged) > repeatLog {
			text, logged = err.Error(), time.Now()
			r.log.WarnContext(ctx, "waiting for the database", append(r.where(), "err", err)...)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			r.log.InfoContext(ctx, "stopped", "replica", r.name, "err", ErrStopped)
			return ErrStopped
		}
		if err = r.useDatabase(ctx); err == nil || !mayHeal(err) {
			return err
		}
		why.Store(&err)
	}
}

// answerMeanwhile answers on the listeners until stop is called: the process is alive and not ready.
func (r *Replica) answerMeanwhile(why *atomic.Pointer[error]) (stop func()) {
	check := rpc.Check{Name: "database", Test: func(context.Context) error { return *why.Load() }}
	admin := &rpc.Admin{Timeout: r.cfg.ReadyTimeout, Checks: []rpc.Check{check}}
	var stops []func()
	if r.listeners.admin != nil {
		stops = append(stops, borrow(r.listeners.admin, nil, admin.Handler()))
	}
	stops = append(stops, borrow(r.listeners.api, r.listeners.tls(), rpc.Starting()))
	if r.listeners.grpc != nil { // to a gRPC client, 503 means UNAVAILABLE
		stops = append(stops, borrow(r.listeners.grpc, r.listeners.tls(), rpc.Starting()))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// borrow serves h on a listener until stop is called, and leaves the listener open for another server.
func borrow(l net.Listener, secure *tls.Config, h http.Handler) (stop func()) {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 5 * time.Second,
		TLSConfig: secure, Protocols: &protocols,
	}
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

// Close ends a running Accept.
func (b borrowed) Close() error {
	setDeadline(b.Listener, time.Unix(1, 0))
	return nil
}

func setDeadline(l net.Listener, t time.Time) {
	if d, ok := l.(interface{ SetDeadline(t time.Time) error }); ok {
		d.SetDeadline(t) //nolint:errcheck // a closed listener needs no deadline
	}
}
