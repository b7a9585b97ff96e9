package replica

import (
	"context"
	"net/http"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/throttle"
	"github.com/a2ad/a2ad/internal/wire"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// api serves the protocol.
type api struct {
	engine *engine.Engine
	server *rpc.Server
	calls  *rpc.GRPC // nil when gRPC is off, or on the port of the API

	operators *admin.API // on the listener of the API, and on that of operators
}

// openAPI makes the server. draining ends when streams and waiting sends are to end.
func (r *Replica) openAPI(draining context.Context) (*api, error) {
	eng, err := r.openEngine(draining)
	if err != nil {
		return nil, err
	}
	old, current := r.codecs()
	c := r.serverConfig(draining)
	a := &api{engine: eng, operators: r.openOperators(draining)}
	c.Engine, c.V03, c.V1, c.Operators = eng, old, current, a.operators
	if c.Console, err = r.openConsole(draining, eng); err != nil {
		return nil, err
	}
	if a.server, err = rpc.New(c); err != nil {
		return nil, err
	}
	if r.cfg.GRPCListen == "" {
		return a, nil
	}
	calls := a.server.NewGRPC(v03.Proto{Codec: old, Parts: true}, current)
	if r.listeners.grpc == nil {
		a.server.Share(calls)
	} else {
		a.calls = calls
	}
	return a, nil
}

func (r *Replica) openEngine(draining context.Context) (*engine.Engine, error) {
	cfg := &r.cfg
	return engine.New(r.database.store, r.database.follower, engine.Config{
		BlockingMaxWait: cfg.BlockingMaxWait, MaxMessageBytes: int64(cfg.MaxMessage), MaxTaskBytes: int64(cfg.MaxTask),
		MaxHistory: int64(cfg.MaxHistory), MaxInFlight: cfg.MaxInFlight, MaxPending: cfg.MaxPending,
		MaxStreams: cfg.MaxStreams, MaxStreamsPerOwner: cfg.MaxOwnerStreams, PageKey: r.delivery.pageKey,
		MaxPageToken: int(cfg.MaxCursor), Push: r.delivery.rules(cfg), Drain: draining, Tracer: r.observed.tracer,
	})
}

// codecs returns the codecs of A2A 0.3 and 1.0.
func (r *Replica) codecs() (v03.Codec, v1.Codec) {
	cfg := &r.cfg
	limits := wire.Limits{
		Parts: cfg.MaxParts, PartBytes: int(cfg.MaxPart), IDBytes: int(cfg.MaxID), URLBytes: int(cfg.MaxPushURL),
		TokenSize: int(cfg.MaxPushSecret),
	}
	old := v03.Codec{
		Lenient: cfg.Lenient03, WorkshopCard: cfg.CardWorkshop, Limits: limits, OnLenient: r.observed.onLenient(),
	}
	return old, v1.Codec{Limits: limits, OldErrors: cfg.ErrorProfile == rpc.Profile100}
}

// serverConfig is the configuration of the server without the engine and the codecs.
func (r *Replica) serverConfig(draining context.Context) rpc.Config {
	cfg, p := &r.cfg, r.public()
	var signer rpc.CardSigner
	if cfg.CardSigning {
		signer = r.delivery.keys
	}
	return rpc.Config{
		JWKS: r.delivery.keys.JWKS, CardSigner: signer, Workers: r.work.remote,
		Agents: r.agents.set.domain(), PublicURL: p.url(), GRPCAddress: p.grpcOnCards(),
		Authenticator: r.credentials.chain, Sessions: r.credentials.sessions, TLS: r.listeners.tls(),
		Refused: r.failures.Note, Open: cfg.Auth == config.AuthNone, Origins: cfg.CORSOrigins,
		Shared: cfg.Sharing == config.SharingTenant, ErrorProfile: cfg.ErrorProfile,
		Limits: rateLimits(&cfg.Rates), TrustedProxies: cfg.TrustedProxies,
		LenientVersion: cfg.LenientVersion, PureCard: !cfg.CardLegacyFields,
		MaxBody: int64(cfg.MaxBody), MaxHeader: int(cfg.MaxHeader), MaxDepth: cfg.MaxJSONDepth,
		BlockingWait: cfg.BlockingMaxWait, ReadHeaderTimeout: cfg.ReadHeaderTimeout, ReadTimeout: cfg.ReadTimeout,
		WriteTimeout: cfg.WriteTimeout, IdleTimeout: cfg.HTTPIdleTimeout,
		SSEPing: cfg.SSEPing, SSEWriteTimeout: cfg.SSEWriteTimeout, SSERetry: cfg.SSERetry,
		Drain: draining, Logger: r.log, Watch: r.observed.watch(), Tracer: r.observed.tracer, Budget: r.budget,
	}
}

// openOperators makes the API of operators.
func (r *Replica) openOperators(draining context.Context) *admin.API {
	var check func(context.Context, bool) []admin.Finding
	if r.options.Doctor != nil {
		check = func(ctx context.Context, offline bool) []admin.Finding {
			cfg := r.cfg
			return r.options.Doctor(ctx, &cfg, offline)
		}
	}
	return admin.New(admin.Config{
		Doctor: check,
		Store:  r.database.store, SignIn: signIn{r.credentials.chain, r}.Authenticate,
		Admit:    func(p auth.Principal, write bool) error { return r.api.server.AdmitOperator(p, write) },
		Sessions: r.credentials.sessions, Budget: r.budget,
		Streams: admin.Streams{
			Follower: r.database.follower, Tail: r.database.changes, Drain: draining,
			Open: func(hr *http.Request, p auth.Principal) (func(), error) {
				return r.api.server.OpenOperatorStream(hr, p)
			},
			Ping: r.cfg.SSEPing, WriteTimeout: r.cfg.SSEWriteTimeout, Retry: r.cfg.SSERetry,
		},
		Agents:      func() []*a2a.Agent { return *r.agents.served.Load() },
		MoveSecrets: r.moveSecrets,
		MaxBody:     int64(r.cfg.MaxBody), MaxTaskBytes: int64(r.cfg.MaxTask), MaxHistory: int64(r.cfg.MaxHistory),
		AnswerTimeout: r.cfg.WriteTimeout, Logger: r.log,
	})
}

func rateLimits(c *config.Rates) throttle.Limits {
	return throttle.Limits{
		Reads: throttle.Rate(c.RateReads), Sends: throttle.Rate(c.RateSends), Streams: throttle.Rate(c.RateStreams),
		PushWrites: throttle.Rate(c.RatePushWrites), SignIns: throttle.Rate(c.RateSignIns),
	}
}
