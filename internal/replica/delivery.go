package replica

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// delivery sends webhooks, and has the keys that all replicas share.
type delivery struct {
	keys      *push.Keys
	pageKey   []byte // encrypts page tokens
	policy    push.Policy
	deliverer *push.Deliverer
}

// loadKeys reads the key of page tokens and the keys that sign webhooks. It makes those that are missing.
func (r *Replica) loadKeys(ctx context.Context, d *database) (*delivery, error) {
	secrets := make([]push.Secret, len(r.cfg.PushSigningSecrets))
	var err error
	for i, s := range r.cfg.PushSigningSecrets {
		if secrets[i], err = push.ParseSecret(s.Reveal()); err != nil {
			return nil, fmt.Errorf("A2AD_PUSH_SIGNING_SECRETS: %w", err)
		}
	}
	v := &delivery{}
	if v.pageKey, err = d.store.Access.ServerKey(ctx, "page-token"); err != nil {
		return nil, err
	}
	v.keys = push.NewKeys(push.KeysConfig{
		Store: d.store, Ring: r.cfg.Keys, Secrets: secrets, Issuer: r.public().url(), Logger: r.log,
	})
	if err := v.keys.Load(ctx); err != nil {
		return nil, fmt.Errorf("webhooks: %w", err)
	}
	return v, nil
}

func (r *Replica) public() public { return public{&r.cfg.Listeners, r.listeners} }

// open makes the part that delivers.
func (v *delivery) open(ctx context.Context, r *Replica) (err error) {
	cfg := &r.cfg
	if v.policy, err = pushPolicy(cfg, r.public()); err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	client := push.ClientConfig{
		Policy: v.policy, UserAgent: r.userAgent(), Timeout: cfg.PushTimeout, ConnsPerHost: cfg.PushPerDestination,
		ReadAnswer: int(cfg.MaxPushAnswer), KeepAnswer: int(cfg.KeepPushAnswer),
	}
	if cfg.PushProxy != "" {
		if client.Proxy, err = url.Parse(string(cfg.PushProxy)); err != nil {
			return fmt.Errorf("A2AD_PUSH_PROXY: %w", err)
		}
	}
	old, current := v03.Codec{}, v1.Codec{}
	v.deliverer = push.NewDeliverer(push.DelivererConfig{
		Store: r.database.store, Hub: r.database.hub, Client: push.NewClient(client), Keys: v.keys, Ring: cfg.Keys,
		Lease:    cfg.LeaseTTL,
		Schedule: push.Schedule{Waits: cfg.PushRetry, Throttle: cfg.PushThrottleWait},
		Breaker: webhooks.Breaker{
			Fails: cfg.PushBreaker.Failures, FirstOpen: cfg.PushBreaker.First, MaxOpen: cfg.PushBreaker.Longest,
			DisableAfter: cfg.PushDisableAfter,
		},
		Render: map[int16]push.Render{
			a2a.PushV03: func(t *a2a.Task) []byte { return old.AppendSnapshot(nil, t) },
			a2a.PushV10: func(t *a2a.Task) []byte { return current.AppendSnapshot(nil, t) },
		},
		Slots: cfg.PushConcurrency, PerOrigin: cfg.PushPerDestination, Poll: min(cfg.PushPoll, cfg.PollInterval),
		MaxBody: int(cfg.PushMaxBody), Logger: r.log, Tracer: r.observed.tracer, Budget: r.budget,
	})
	r.warnOpenings(ctx)
	return nil
}

// pushPolicy says where webhooks may go: not to a listener of this process, and not to the addresses at
// which callers reach the server.
func pushPolicy(cfg *config.Config, p public) (push.Policy, error) {
	var addrs []net.Addr
	for _, l := range p.listeners.all() {
		addrs = append(addrs, l.Addr())
	}
	self, err := push.Listening(addrs...)
	if err != nil {
		return push.Policy{}, err
	}
	origins := []string{p.url()}
	if grpc := strings.ToLower(p.grpc()); grpc != "" {
		origins = append(origins, "https://"+grpc, "http://"+grpc)
	}
	return push.Policy{
		Allow: cfg.PushAllowCIDRs, AllowHTTP: cfg.PushAllowHTTP, Self: self, SelfOrigins: origins,
		MaxURL: int(cfg.MaxPushURL),
	}, nil
}

// warnOpenings logs where webhooks may go that they usually may not, unless that is expected.
func (r *Replica) warnOpenings(ctx context.Context) {
	if len(r.cfg.PushAllowCIDRs) > 0 && !r.options.Expected["A2AD_PUSH_ALLOW_CIDRS"] {
		r.log.WarnContext(ctx, "webhooks may go to private addresses", "A2AD_PUSH_ALLOW_CIDRS", r.cfg.PushAllowCIDRs)
	}
	if r.cfg.PushAllowHTTP && !r.options.Expected["A2AD_PUSH_ALLOW_HTTP"] {
		r.log.WarnContext(ctx, "webhooks may go over http", "A2AD_PUSH_ALLOW_HTTP", "on")
	}
	if proxy := string(r.cfg.PushProxy); proxy != "" {
		r.log.WarnContext(ctx, "webhooks go through a proxy, which must refuse private addresses itself",
			"A2AD_PUSH_PROXY", proxy)
	}
}

// rules says which webhooks clients may set.
func (v *delivery) rules(cfg *config.Config) engine.PushRules {
	limits := push.Limits{URL: int(cfg.MaxPushURL), Secret: int(cfg.MaxPushSecret)}
	return engine.PushRules{
		Max: cfg.MaxPushConfigs,
		Check: func(c *a2a.PushConfig) error {
			if err := push.CheckConfig(c, v.policy, limits); err != nil {
				return err
			}
			if cfg.Keys.Empty() && (c.Token != "" || c.Credentials != "") {
				return a2a.InvalidParams("pushNotificationConfig",
					"this server has no key to encrypt a token or credentials with")
			}
			return nil
		},
		Origin: func(raw string) string {
			u, err := v.policy.CheckURL(raw)
			if err != nil {
				return "" // not after Check
			}
			return push.Origin(u)
		},
		Seal: func(row a2a.ID, c *a2a.PushConfig) (token, credentials []byte, err error) {
			return push.SealSecrets(cfg.Keys, row, c)
		},
		SealURL: func(row a2a.ID, url string) (string, []byte, error) { return push.SealURL(cfg.Keys, row, url) },
	}
}
