package replica

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/pgcheck"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/tail"
	"github.com/a2ad/a2ad/internal/wake"
)

// database is the store, the wake-ups between replicas, and the streams that follow it.
type database struct {
	store     *store.Store
	hub       *notify.Hub
	publisher *notify.Publisher
	listener  *notify.Listener
	follower  *stream.Follower
	changes   *tail.Tail
	losses    *notify.Losses
}

// openDatabase connects. The store and the wake-ups need each other. reserve finds room for a new task
// in the worker of this replica; it is not called before the worker exists.
func (r *Replica) openDatabase(ctx context.Context, reserve func(string) (tasks.Slot, bool)) (*database, error) {
	d := &database{hub: &notify.Hub{}}
	var err error
	d.publisher, err = notify.NewPublisher(notify.PublisherConfig{
		Replica: r.name, Interval: r.cfg.WakeInterval, Log: r.log,
		Notify: func(ctx context.Context, payloads []string) error { return d.store.DB.Notify(ctx, payloads) },
	})
	if err != nil {
		return nil, fmt.Errorf("wake-ups: %w", err)
	}
	cfg := &r.cfg
	d.store, err = store.Open(ctx, store.Config{
		Config: db.Config{
			URL: cfg.DatabaseURL.Reveal(), Replica: r.name, PoolSize: cfg.DBPool, Logger: r.log,
			StatementTimeout: cfg.StatementTimeout, LockTimeout: cfg.LockTimeout, IdleTxTimeout: cfg.IdleTxTimeout,
			AcquireTimeout: cfg.PoolTimeout, ConnectTimeout: cfg.ConnectTimeout, PacketTimeout: cfg.TCPTimeout,
			Wake: d.wake, Tracer: r.observed.statements(), Moved: d.moved,
		},
		Reserve:   reserve,
		Committed: d.committed,
	})
	if err != nil {
		return nil, err
	}
	d.listener, err = notify.NewListener(notify.ListenerConfig{
		Replica: r.name, Hub: d.hub, Alive: db.AliveWriter, PingInterval: cfg.ListenerPing, Log: r.log,
		Echo:    func(ctx context.Context, payload string) error { return d.store.DB.Notify(ctx, []string{payload}) },
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return r.listen(ctx, d.store.DB) },
	})
	if err != nil {
		d.store.Close()
		return nil, fmt.Errorf("wake-ups: %w", err)
	}
	d.follower = stream.New(d.store.Tasks.Log(), d.hub, cfg.PollInterval, r.log)
	d.changes = tail.New(d.store.Operate.SearchTasks, d.hub, r.log)
	d.losses = &notify.Losses{Hub: d.hub, Dead: d.store.Tasks.DeadServers, Every: heartbeatEvery, Log: r.log}
	d.follower.KeepAtMost(r.budget.Stats().Total / 8)
	return d, nil
}

// listen connects for the listener, whose session holds the presence lock, too.
func (r *Replica) listen(ctx context.Context, store *db.DB) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, store.ConnConfig("listener"))
	if err != nil {
		return nil, err
	}
	if err := store.LockPresence(ctx, conn); err != nil { // it still hears what others say
		r.log.WarnContext(ctx, "the listener has no share of the presence lock", "err", err)
	}
	return conn, nil
}

// moved makes the listener check its connection, too.
func (d *database) moved() {
	if d.listener != nil {
		d.listener.Doubt()
	}
}

// wake tells this replica and the others to read the keys again.
func (d *database) wake(keys ...string) {
	d.hub.Wake(keys...)
	d.publisher.Publish(keys...)
}

// committed gives new events to the streams of this replica, and wakes those of the others.
func (d *database) committed(task a2a.ID, events []a2a.Entry) {
	key := wake.Task(task)
	if d.follower.Offer(task, events) {
		d.hub.WakeClass(key)
	} else {
		d.hub.Wake(key)
	}
	d.publisher.Publish(key)
}

// checkDatabase refuses a schema that is too old or too new, and warns about an unexpected superuser login.
func (r *Replica) checkDatabase(ctx context.Context, d *database) error {
	if err := d.store.Operate.CheckSchema(ctx); err != nil {
		return err
	}
	login, super, err := pgcheck.SuperuserLogin(ctx, d.store.DB.Work())
	if super && !r.options.Expected["A2AD_DATABASE_URL"] {
		r.log.WarnContext(ctx,
			"A2AD_DATABASE_URL logs in as a superuser; a member of a2a_app and a2a_worker suffices", "login", login)
	}
	return err
}
