package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/echo"
	"github.com/a2ad/a2ad/internal/executor/exec"

	httpexec "github.com/a2ad/a2ad/internal/executor/http"
	"github.com/a2ad/a2ad/internal/executor/script"
	"github.com/a2ad/a2ad/internal/lifecycle"
	"github.com/a2ad/a2ad/internal/maintenance"
	"github.com/a2ad/a2ad/internal/metrics"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/throttle"
	"github.com/a2ad/a2ad/internal/tracing"
	"github.com/a2ad/a2ad/internal/wake"
	"github.com/a2ad/a2ad/internal/wire"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
	"github.com/a2ad/a2ad/internal/worker"
	"github.com/a2ad/a2ad/internal/workerapi"
)

// replica is one running server: everything of a process, put together.
type replica struct {
	cfg    config.Config
	logger *slog.Logger
	name   string
	crew   crew
	served atomic.Pointer[[]*a2a.Agent] // of crew, for who reads while it changes
	reload *reload                      // nil: the agents stay as they are

	api, admin net.Listener // admin is nil when it is off
	grpc       net.Listener // nil when gRPC is off, or on the port of the API
	budget     *budget.Budget
	hub        *notify.Hub
	publisher  *notify.Publisher
	listener   *notify.Listener
	store      *store.Store
	follower   *stream.Follower
	engine     *engine.Engine
	pool       *worker.Pool
	workers    *workerapi.API
	server     *rpc.Server
	calls      *rpc.GRPC        // nil when gRPC is off, or on the port of the API
	keys       *auth.Keys       // nil without authentication
	sessions   *auth.Sessions   // nil likewise
	used       chan string      // ids of keys that were used
	cert       *auth.ServerCert // nil without TLS
	failures   auth.Failures
	tokens     *auth.JWT // nil without an identity provider
	policy     push.Policy
	pushKeys   *push.Keys
	pageKey    []byte // seals page tokens
	deliverer  *push.Deliverer
	metrics    *metrics.Metrics  // nil when nobody could read them
	traces     *tracing.Provider // nil when they are off
	tracer     *tracing.Tracer   // nil likewise
}

// openReplica listens, but starts nothing, and does not ask the database: see connect.
func openReplica(ctx context.Context, app *App, cfg config.Config, files []agents.File) (_ *replica, err error) {
	r := &replica{cfg: cfg, logger: newLogger(cfg.Logs, app.Stderr), name: cfg.ReplicaName(), hub: &notify.Hub{}, used: make(chan string, maxUsedKeys)}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.api, err = listen("A2AD_LISTEN", cfg.Listen); err != nil {
		return nil, err
	}
	if own := cfg.GRPCListen.Own(); own != "" {
		if r.grpc, err = listen("A2AD_GRPC_LISTEN", own); err != nil {
			return nil, err
		}
	}
	if cfg.AdminListen != "" {
		if r.admin, err = listen("A2AD_ADMIN_LISTEN", cfg.AdminListen); err != nil {
			return nil, err
		}
	}
	r.openBudget()
	r.openMetrics()
	if err = r.openTraces(ctx, app); err != nil {
		return nil, err
	}
	if err = r.openTLS(); err != nil {
		return nil, err
	}
	r.failures.Record = r.recordFailure
	first, err := r.hire(app, files)
	if err != nil {
		return nil, err
	}
	r.employ(first)
	return r, nil
}

// openStore connects the database and the wakes, which need each other.
func (r *replica) openStore(ctx context.Context) (err error) {
	r.publisher, err = notify.NewPublisher(notify.PublisherConfig{
		Replica: r.name, Interval: r.cfg.WakeInterval, Log: r.logger,
		Notify: func(ctx context.Context, payloads []string) error { return r.store.Notify(ctx, payloads) },
	})
	if err != nil {
		return fmt.Errorf("wakes: %w", err)
	}
	var statements pgx.QueryTracer
	if r.traces != nil {
		statements = r.traces.Statements()
	}
	r.store, err = store.Open(ctx, store.Config{
		URL: r.cfg.DatabaseURL.Reveal(), Replica: r.name, PoolSize: r.cfg.DBPool, Logger: r.logger,
		StatementTimeout: r.cfg.StatementTimeout, LockTimeout: r.cfg.LockTimeout, IdleTxTimeout: r.cfg.IdleTxTimeout, AcquireTimeout: r.cfg.PoolTimeout,
		ConnectTimeout: r.cfg.ConnectTimeout, PacketTimeout: r.cfg.TCPTimeout,
		Wake: r.wake, Take: r.take, Committed: r.committed, Tracer: statements,
	})
	if err != nil {
		return err
	}
	r.listener, err = notify.NewListener(notify.ListenerConfig{
		Replica: r.name, Hub: r.hub, Alive: store.Alive, PingInterval: r.cfg.ListenerPing, Log: r.logger,
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			return pgx.ConnectConfig(ctx, r.store.ConnConfig("listener"))
		},
	})
	if err != nil {
		return fmt.Errorf("wakes: %w", err)
	}
	r.follower = stream.New(r.store, r.hub, r.cfg.PollInterval, r.logger)
	r.follower.KeepAtMost(r.budget.Stats().Total / 8)
	return nil
}

// wake tells everybody to look at the keys again.
func (r *replica) wake(keys ...string) {
	r.hub.Wake(keys...)
	r.publisher.Publish(keys...)
}

// take finds room for a new task in the worker of this replica.
func (r *replica) take(agent string) (store.Slot, bool) { return r.pool.Reserve(agent) }

// committed hands new events to those who follow the task here, and tells the other replicas.
func (r *replica) committed(task a2a.ID, events []a2a.Entry) {
	key := wake.Task(task)
	if !r.follower.Offer(task, events) {
		r.hub.Wake(key)
	}
	r.publisher.Publish(key)
}

// limits are those of agents that set none.
func (r *replica) limits() a2a.Limits {
	return a2a.Limits{
		MaxAttempts: r.cfg.MaxAttempts, BackoffBase: r.cfg.RetryBackoffBase, BackoffMax: r.cfg.RetryBackoffMax,
		LeaseTTL: r.cfg.LeaseTTL, Deadline: r.cfg.RunDeadline, IdleTimeout: r.cfg.IdleTimeout,
	}
}

// openWorkers makes the API of workers that claim the tasks of some agents from outside.
func (r *replica) openWorkers(ctx context.Context, authenticator auth.Authenticator) {
	cfg := workerapi.Config{
		Authenticator: counted{authenticator, r}, Sessions: r.sessions, Agents: r.crew.pulled(), Limits: r.limits(), Poll: r.cfg.PollInterval, AnswerTimeout: r.cfg.WriteTimeout,
		MaxBytes: int64(r.cfg.MaxTask), MaxSeq: int64(r.cfg.MaxChunks), MaxArtifacts: r.cfg.MaxArtifacts,
		MaxBody: int64(r.cfg.MaxBody), MaxDepth: r.cfg.MaxJSONDepth, MaxWaiting: r.cfg.MaxClaims, Drain: ctx, Logger: r.logger, Tracer: r.tracer, Budget: r.budget,
	}
	r.workers = workerapi.New(r.store, r.hub, cfg)
}

func (r *replica) openWork() {
	def := r.limits()
	r.pool = worker.New(r.store, r.hub, worker.Config{
		Worker: r.name, Slots: r.cfg.Workers, Agents: r.crew.workers(), Limits: def, Poll: r.cfg.PollInterval, Drain: runGrace(r.cfg.DrainTimeout),
		MaxBytes: int64(r.cfg.MaxTask), MaxSeq: int64(r.cfg.MaxChunks), MaxArtifacts: r.cfg.MaxArtifacts, Logger: r.logger, Tracer: r.tracer,
	})
}

// runGrace leaves a part of the drain time for giving back what did not end in it.
func runGrace(drain time.Duration) time.Duration { return drain - min(drain/4, 2*time.Second) }

func newExecutor(app *App, cfg config.Config, logger *slog.Logger, spec agents.Spec) (executor.Executor, error) {
	switch spec := spec.(type) {
	case agents.Echo:
		return echo.Executor{}, nil
	case agents.Script:
		return script.New(script.Config{Allow: func(a netip.Addr) bool {
			return slices.ContainsFunc(cfg.PushAllowCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
		}}), nil
	case agents.HTTP:
		return newHTTP(app, logger, spec)
	case agents.Pull:
		return nil, nil // workers far away do it: see openWorkers
	case agents.Exec:
		return exec.New(exec.Config{
			Command: spec.Command, Input: exec.Input(spec.Input), Output: exec.Output(spec.Output), Dir: spec.Dir, Env: spec.Env,
			Environ: app.Environ, Log: logger, MaxOutput: spec.MaxOutput,
		})
	case agents.A2A:
		return newUpstream(app, cfg, logger, spec)
	}
	return nil, fmt.Errorf("executor %T is not known", spec)
}

func newHTTP(app *App, logger *slog.Logger, spec agents.HTTP) (executor.Executor, error) {
	header, secure, err := connection(app, spec.Remote)
	if err != nil {
		return nil, err
	}
	return httpexec.New(httpexec.Config{
		URL: spec.URL, CancelURL: spec.CancelURL, Header: header, TLS: secure, ConnectTimeout: spec.ConnectTimeout, FirstByteTimeout: spec.FirstByteTimeout,
		IdleTimeout: spec.IdleTimeout, UserAgent: "a2ad/" + version, Log: logger,
	})
}

// publicURL is where agent cards say that the server is.
func (r *replica) publicURL() string {
	if r.cfg.PublicURL != "" {
		return string(r.cfg.PublicURL)
	}
	return r.base()
}

func (r *replica) openAPI(ctx context.Context) error {
	public := r.publicURL()
	err := r.openPush(ctx, public)
	if err != nil {
		return err
	}
	r.engine, err = engine.New(r.store, r.follower, engine.Config{
		BlockingMaxWait: r.cfg.BlockingMaxWait, MaxMessageBytes: int64(r.cfg.MaxMessage), MaxTaskBytes: int64(r.cfg.MaxTask), MaxHistory: int64(r.cfg.MaxHistory), MaxInFlight: r.cfg.MaxInFlight, MaxPending: r.cfg.MaxPending,
		MaxStreams: r.cfg.MaxStreams, MaxStreamsPerOwner: r.cfg.MaxOwnerStreams, PageKey: r.pageKey, MaxPageToken: int(r.cfg.MaxCursor), Push: r.pushRules(), Drain: ctx, Tracer: r.tracer,
	})
	if err != nil {
		return err
	}
	authenticator, err := r.authenticator()
	if err != nil {
		return err
	}
	r.openWorkers(ctx, authenticator)
	limits := wire.Limits{
		Parts: r.cfg.MaxParts, PartBytes: int(r.cfg.MaxPart), IDBytes: int(r.cfg.MaxID), URLBytes: int(r.cfg.MaxPushURL), TokenSize: int(r.cfg.MaxPushSecret),
	}
	old, current := v03.Codec{Lenient: r.cfg.Lenient03, WorkshopCard: r.cfg.CardWorkshop, Limits: limits, OnLenient: r.onLenient()}, v1.Codec{Limits: limits, OldErrors: r.cfg.ErrorProfile == rpc.Profile100}
	var signer rpc.CardSigner
	if r.cfg.CardSigning {
		signer = r.pushKeys
	}
	r.server, err = rpc.New(rpc.Config{
		Engine: r.engine, JWKS: r.pushKeys.JWKS, CardSigner: signer, Workers: r.workers, Agents: r.crew.agents(), PublicURL: public, GRPCAddress: r.grpcAddress(public),
		Authenticator: authenticator, Sessions: r.sessions, TLS: r.tlsConfig(), Refused: r.failures.Note, Open: r.cfg.Auth == config.AuthNone, Origins: r.cfg.CORSOrigins, Shared: r.cfg.Sharing == config.SharingTenant,
		V03: old, V1: current, ErrorProfile: r.cfg.ErrorProfile,
		Limits: rates(r.cfg.Rates), TrustedProxies: r.cfg.TrustedProxies,
		LenientVersion: r.cfg.LenientVersion, PureCard: !r.cfg.CardLegacyFields,
		MaxBody: int64(r.cfg.MaxBody), MaxHeader: int(r.cfg.MaxHeader), MaxDepth: r.cfg.MaxJSONDepth, BlockingWait: r.cfg.BlockingMaxWait,
		ReadHeaderTimeout: r.cfg.ReadHeaderTimeout, ReadTimeout: r.cfg.ReadTimeout, WriteTimeout: r.cfg.WriteTimeout, IdleTimeout: r.cfg.HTTPIdleTimeout,
		SSEPing: r.cfg.SSEPing, SSEWriteTimeout: r.cfg.SSEWriteTimeout, SSERetry: r.cfg.SSERetry, Drain: ctx, Logger: r.logger, Watch: r.watch(), Tracer: r.tracer, Budget: r.budget,
	})
	if err != nil || r.cfg.GRPCListen == "" {
		return err
	}
	calls := r.server.NewGRPC(v03.Proto{Codec: old, Parts: true}, current)
	if r.grpc == nil {
		r.server.Share(calls)
	} else {
		r.calls = calls
	}
	return nil
}

// rates are the rates as the server takes them.
func rates(c config.Rates) throttle.Limits {
	return throttle.Limits{
		Reads: throttle.Rate(c.RateReads), Sends: throttle.Rate(c.RateSends), Streams: throttle.Rate(c.RateStreams),
		PushWrites: throttle.Rate(c.RatePushWrites), SignIns: throttle.Rate(c.RateSignIns),
	}
}

// retention says how long what agents' tasks leave is kept.
func (r *replica) retention() (rules map[string]a2a.Retention, others a2a.Retention) {
	keep := time.Duration(r.cfg.Retention)
	others = a2a.Retention{Completed: keep, Failed: keep, Canceled: keep, Rejected: keep, Log: time.Duration(r.cfg.LogRetention)}
	rules = make(map[string]a2a.Retention)
	for _, a := range *r.served.Load() {
		rules[a.Name] = a.Retention.Or(others)
	}
	return rules, others
}

// run serves until ctx is done and everything has stopped. It is not ready from when told is
// done, which may be earlier.
func (r *replica) run(ctx, told context.Context) error {
	defer r.close()
	rescuer := &maintenance.Rescuer{
		Store: r.store, Policies: r.pool.Policies, MaxAttempts: r.cfg.MaxAttempts, Every: r.cfg.RescueInterval, Logger: r.logger,
	}
	retirer := &maintenance.Retirer{Store: r.store, Rules: r.retention, Every: r.cfg.RetireInterval, Logger: r.logger}
	sweeper := &maintenance.WebhookSweeper{
		Store: r.store, Keep: time.Duration(r.cfg.PushRetention), Forget: max(time.Duration(r.cfg.PushRetention), r.cfg.PushDisableAfter), Every: r.cfg.SweepInterval, Logger: r.logger,
	}
	actions := &maintenance.ActionSweeper{
		Store: r.store, Keep: time.Duration(r.cfg.AuditRetention), KeepSignIns: time.Duration(r.cfg.SigninRetention), Every: r.cfg.SweepInterval, Logger: r.logger,
	}
	attempts := &maintenance.AttemptSweeper{Store: r.store, Keep: time.Duration(r.cfg.AttemptRetention), Every: r.cfg.SweepInterval, Logger: r.logger}
	batches := &maintenance.BatchSweeper{Store: r.store, Logger: r.logger}
	front := lifecycle.Stage{
		{Name: "workers", Run: r.pool.Run},
		{Name: "api", Run: func(ctx context.Context) error { return r.server.Serve(ctx, r.api, r.cfg.DrainTimeout) }},
		{Name: "end", Run: func(ctx context.Context) error { return r.announce(ctx, told) }},
	}
	back := lifecycle.Stage{{Name: "database", Run: r.store.Watch}, {Name: "publisher", Run: r.publisher.Run}, {Name: "listener", Run: r.listener.Run}}
	where := []any{"replica", r.name, "api", r.api.Addr().String(), "agents", len(r.crew)}
	if r.calls != nil {
		where = append(where, "grpc", r.grpc.Addr().String())
		front = append(front, lifecycle.Part{Name: "grpc", Run: func(ctx context.Context) error { return r.calls.Serve(ctx, r.grpc, r.cfg.DrainTimeout) }})
	}
	if r.admin != nil {
		r.showMetrics(told)
		where = append(where, "admin", r.admin.Addr().String())
		admin := &rpc.Admin{Timeout: r.cfg.ReadyTimeout, Checks: r.checks(told), Metrics: r.metrics.Handler(r.logger)}
		back = append(back, lifecycle.Part{Name: "admin", Run: func(ctx context.Context) error { return rpc.ServeAdmin(ctx, r.admin, admin.Handler()) }})
	}
	if r.reload != nil {
		front = append(front, lifecycle.Part{Name: "agent files", Run: r.followFiles})
	}
	r.logger.InfoContext(ctx, "ready", where...)
	err := lifecycle.New(
		back,
		lifecycle.Stage{{Name: "streams", Run: r.follower.Run}, {Name: "rescue", Run: rescuer.Run}, {Name: "remote workers", Run: r.workers.Run},
			{Name: "batch ids", Run: batches.Run}, {Name: "audit log", Run: actions.Run}, {Name: "attempts", Run: attempts.Run}, {Name: "sweep", Run: sweeper.Run}, {Name: "retention", Run: retirer.Run},
			{Name: "api keys", Run: r.followKeys}, {Name: "credentials in use", Run: r.sessions.Run}, {Name: "identity provider", Run: r.refreshIssuer}, {Name: "failed sign-ins", Run: r.failures.Run},
			{Name: "webhooks", Run: r.deliverer.Run}, {Name: "signing keys", Run: r.pushKeys.Run}},
		front,
	).Run(ctx)
	r.logger.InfoContext(ctx, "stopped", "replica", r.name)
	return err
}

// announce says in the log that the server was told to stop, when it is: from then to "stopped" it drains.
func (r *replica) announce(ctx, told context.Context) error {
	select {
	case <-told.Done():
	case <-ctx.Done():
	}
	if told.Err() != nil {
		r.logger.InfoContext(ctx, "stopping", "replica", r.name, "cause", context.Cause(told).Error())
	}
	<-ctx.Done()
	return nil
}

var (
	errNotAccepting = errors.New("not listening")
	errNoClaims     = errors.New("no try to claim work has gone through since the start or the last failure")
)

// checks is what /readyz asks. told ends when the server is told to stop.
func (r *replica) checks(told context.Context) []rpc.Check {
	return []rpc.Check{
		{Name: "drain", Test: func(context.Context) error { return context.Cause(told) }},
		{Name: "database", Test: r.store.Ready},
		{Name: "schema", Test: r.store.CheckSchema},
		{Name: "api", Test: func(context.Context) error {
			if !r.server.Accepting() || r.calls != nil && !r.calls.Accepting() {
				return errNotAccepting
			}
			return nil
		}},
		{Name: "workers", Test: func(context.Context) error {
			if !r.pool.Healthy() {
				return errNoClaims
			}
			return nil
		}},
	}
}

// listeners returns all that the process listens on.
func (r *replica) listeners() (open []net.Listener) {
	for _, l := range []net.Listener{r.api, r.grpc, r.admin} {
		if l != nil {
			open = append(open, l)
		}
	}
	return open
}

func (r *replica) close() {
	for _, l := range r.listeners() {
		l.Close()
	}
	if r.store != nil {
		r.store.Close()
	}
	r.closeTraces()
}
