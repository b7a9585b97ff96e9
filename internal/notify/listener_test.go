package notify_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// await receives from ch. The limit is for a test that hangs, not for one that is slow.
func await[T any](t *testing.T, what string, ch <-chan T) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(5 * time.Minute):
		t.Fatalf("no %s", what)
	}
}

func woken(wake <-chan struct{}) bool {
	select {
	case <-wake:
		return true
	default:
		return false
	}
}

// levels is a log that reports on channels when an outage begins and ends.
type levels struct {
	slog.Handler
	lost, back chan string // "<message>: <err>"
}

func newLevels() *levels {
	return &levels{Handler: slog.DiscardHandler, lost: make(chan string, 100), back: make(chan string, 100)}
}

func (*levels) Enabled(context.Context, slog.Level) bool { return true }

func (l *levels) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool { b.WriteString(" " + a.String()); return true })
	if r.Level >= slog.LevelWarn {
		l.lost <- b.String()
	} else {
		l.back <- b.String()
	}
	return nil
}

// running starts a Listener, and returns it with its hub once it listens. The listener is stopped
// at the end of the test, and must then return nil.
func running(t *testing.T, cfg notify.ListenerConfig) (*notify.Listener, *notify.Hub) {
	t.Helper()
	l := start(t, &cfg)
	await(t, "LISTEN", l.Ready())
	return l, cfg.Hub
}

func start(t *testing.T, cfg *notify.ListenerConfig) *notify.Listener {
	t.Helper()
	cfg.Hub = &notify.Hub{}
	if cfg.Replica == "" {
		cfg.Replica = "here"
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Backoff = backoff.Policy{Base: time.Millisecond, Max: 10 * time.Millisecond}
	l, err := notify.NewListener(*cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if l.Healthy() {
			t.Error("a stopped listener is healthy")
		}
	})
	return l
}

// connectAs opens connections with an application name, so that a test can find them.
func connectAs(url, name string) func(context.Context) (*pgx.Conn, error) {
	return func(ctx context.Context) (*pgx.Conn, error) {
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			return nil, err
		}
		cfg.RuntimeParams["application_name"] = name
		return pgx.ConnectConfig(ctx, cfg)
	}
}

// publishing starts a Publisher of another replica, connected like in the store.
func publishing(t *testing.T, pool *pgxpool.Pool, replica string) *notify.Publisher {
	t.Helper()
	p, err := notify.NewPublisher(notify.PublisherConfig{
		Replica: replica,
		Notify: func(ctx context.Context, payloads []string) error {
			_, err := pool.Exec(ctx, "SELECT pg_notify('a2ad', p) FROM unnest($1::text[]) p", payloads)
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
	return p
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func TestPublishHereWakesThere(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	pool := pg.Pool(t)
	l, hub := running(t, notify.ListenerConfig{Connect: connectAs(pg.URL, "listener")})
	there, here := publishing(t, pool, "there"), publishing(t, pool, "here")
	wake, stop := hub.Wait("task:a")
	defer stop()
	other, stopOther := hub.Wait("task:b")
	defer stopOther()

	here.Publish("task:a") // its own: the hub has done this already
	for l.Stats().Own == 0 {
		there.Publish("task:b") // repeated until one is received
		await(t, "wake of b", other)
	}
	if woken(wake) {
		t.Error("a notification of the own replica woke a waiter")
	}
	there.Publish("task:nobody", "task:a")
	await(t, "wake of a", wake)
	if !l.Healthy() || l.Stats().Reconnects != 0 || l.Stats().Unreadable != 0 {
		t.Errorf("healthy %t, stats %+v", l.Healthy(), l.Stats())
	}
}

func TestUnreadablePayloadsWakeAll(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	pool := pg.Pool(t)
	l, hub := running(t, notify.ListenerConfig{Connect: connectAs(pg.URL, "listener")})
	wake, stop := hub.Wait("task:a")
	defer stop()
	for _, payload := range []string{"", "hello", "v2|there|task:b", "there *", "there task:b *"} {
		exec(t, pool, "SELECT pg_notify('a2ad', $1)", payload)
		await(t, "wake by "+strconv.Quote(payload), wake)
	}
	if got := l.Stats(); got.Received != 5 || got.Unreadable != 3 {
		t.Errorf("stats %+v, want 5 received, 3 of them unreadable", got)
	}
}

// TestPingsLoseNothing: with a ping every millisecond, notifications keep arriving during pings.
func TestPingsLoseNothing(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	l, hub := running(t, notify.ListenerConfig{
		Connect: connectAs(pg.URL, "listener"), Alive: db.Alive, PingInterval: time.Millisecond,
		PingTimeout: 5 * time.Minute,
	})
	p := publishing(t, pg.Pool(t), "there")
	wake, stop := hub.Wait("task:a")
	defer stop()
	for range 100 {
		p.Publish("task:a")
		await(t, "wake", wake)
	}
	if n := l.Stats().Reconnects; n != 0 {
		t.Errorf("%d reconnects, want none", n)
	}
}

func TestKilledBackendWakesAllAndListensAgain(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	pool := pg.Pool(t)
	log := newLevels()
	l, hub := running(t, notify.ListenerConfig{Connect: connectAs(pg.URL, "victim"), Log: slog.New(log)})
	p := publishing(t, pool, "there")
	wake, stop := hub.Wait("task:a")
	defer stop()
	for i := range uint64(3) {
		exec(t, pool, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim'")
		await(t, "wake after the reconnect", wake) // wake-ups in the meantime were lost: read again
		await(t, "warning", log.lost)
		await(t, "all-clear", log.back)
		p.Publish("task:a")
		await(t, "wake by NOTIFY", wake)
		if got := l.Stats().Reconnects; got != i+1 || !l.Healthy() {
			t.Errorf("%d reconnects, healthy %t, want %d and healthy", got, l.Healthy(), i+1)
		}
	}
	if len(log.lost)+len(log.back) != 0 {
		t.Error("an outage was logged more than once")
	}
}

// behindProxy returns a database URL that leads through a proxy.
func behindProxy(t *testing.T, url string) (*proxy, func(context.Context) (*pgx.Conn, error)) {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, cfg.Host, cfg.Port)
	cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", p.ln.Addr().String())
	}
	return p, func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, cfg) }
}

func TestHalfOpenConnectionIsNoticed(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	px, connect := behindProxy(t, pg.URL)
	log := newLevels()
	l, hub := running(t, notify.ListenerConfig{
		Connect: connect, Alive: db.Alive, Log: slog.New(log), PingInterval: 50 * time.Millisecond,
		PingTimeout: 5 * time.Second,
	})
	p := publishing(t, pg.Pool(t), "there")
	wake, stop := hub.Wait("task:a")
	defer stop()

	px.freeze(false)
	frozen := time.Now()
	await(t, "wake after the reconnect", wake)
	t.Logf("noticed after %v", time.Since(frozen))
	if got := <-log.lost; !strings.Contains(got, notify.ErrTimeout.Error()) {
		t.Errorf("log %q does not say why", got)
	}
	p.Publish("task:a")
	await(t, "wake by NOTIFY", wake)
	if !l.Healthy() {
		t.Error("not healthy after the reconnect")
	}
}

func TestNetworkIsUnreachableForAWhile(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	px, connect := behindProxy(t, pg.URL)
	log := newLevels()
	var tries atomic.Int64
	again := make(chan struct{}, 1)
	l, hub := running(t, notify.ListenerConfig{
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			if tries.Add(1) > 3 { // the first connection, and two that failed
				select {
				case again <- struct{}{}:
				default:
				}
			}
			return connect(ctx)
		},
		Log: slog.New(log), PingInterval: 20 * time.Millisecond, PingTimeout: 3 * time.Second,
		ConnectTimeout: 3 * time.Second,
	})
	wake, stop := hub.Wait("task:a")
	defer stop()
	px.freeze(true)
	await(t, "warning", log.lost)
	await(t, "third try", again)
	if l.Healthy() || woken(wake) {
		t.Error("without a network: healthy, or a waiter woken before LISTEN")
	}
	if len(log.lost) != 0 {
		t.Errorf("one outage was logged again: %q", <-log.lost)
	}
	px.thaw()
	await(t, "wake after the reconnect", wake)
	await(t, "all-clear", log.back)
}

func TestServerIsUnreachableAtStart(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	log := newLevels()
	connect := connectAs(pg.URL, "listener")
	var tries atomic.Int64
	l, _ := running(t, notify.ListenerConfig{Log: slog.New(log), Connect: func(ctx context.Context) (*pgx.Conn, error) {
		if tries.Add(1) < 4 {
			return nil, errors.New("connection refused")
		}
		return connect(ctx)
	}})
	if got := <-log.lost; !strings.Contains(got, "connection refused") || len(log.lost) != 0 {
		t.Errorf("log %q and %d more, want one warning with the cause", got, len(log.lost))
	}
	await(t, "all-clear", log.back)
	if n := l.Stats().Reconnects; n != 0 {
		t.Errorf("%d reconnects, want none: it was the first connection", n)
	}
}

func TestStopWhileConnecting(t *testing.T) {
	t.Parallel()
	connecting := make(chan struct{}, 1) // only once: the connection attempt ends with the test
	l := start(t, &notify.ListenerConfig{ConnectTimeout: time.Hour,
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			connecting <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}})
	await(t, "try", connecting)
	select {
	case <-l.Ready():
		t.Error("ready without a connection")
	default: // the cleanup of start stops it
	}
}

func TestListenerConfigIsChecked(t *testing.T) {
	t.Parallel()
	connect := connectAs("", "")
	for _, cfg := range []notify.ListenerConfig{
		{}, {Replica: "r", Hub: &notify.Hub{}}, {Replica: "r", Connect: connect}, {Hub: &notify.Hub{},
			Connect: connect},
	} {
		if _, err := notify.NewListener(cfg); err == nil {
			t.Errorf("config %+v was accepted", cfg)
		}
	}
}
