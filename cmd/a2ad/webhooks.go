package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/store"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// openPush puts the delivery of webhooks together.
func (r *replica) openPush(ctx context.Context, public string) error {
	var err error
	if r.policy, err = r.pushPolicy(public); err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	client := push.ClientConfig{
		Policy: r.policy, UserAgent: "a2ad/" + readVersion().Version, Timeout: r.cfg.PushTimeout, ConnsPerHost: r.cfg.PushPerDestination,
		ReadAnswer: int(r.cfg.MaxPushAnswer), KeepAnswer: int(r.cfg.KeepPushAnswer),
	}
	if r.cfg.PushProxy != "" {
		if client.Proxy, err = url.Parse(string(r.cfg.PushProxy)); err != nil {
			return fmt.Errorf("A2AD_PUSH_PROXY: %w", err)
		}
	}
	old, current := v03.Codec{}, v1.Codec{}
	r.deliverer = push.NewDeliverer(push.DelivererConfig{
		Store: r.store, Hub: r.hub, Client: push.NewClient(client), Keys: r.pushKeys, Ring: r.cfg.Keys, Lease: r.cfg.LeaseTTL,
		Schedule: push.Schedule{Waits: r.cfg.PushRetry, Throttle: r.cfg.PushThrottleWait},
		Breaker: store.Breaker{
			Fails: r.cfg.PushBreaker.Failures, FirstOpen: r.cfg.PushBreaker.First, MaxOpen: r.cfg.PushBreaker.Longest, DisableAfter: r.cfg.PushDisableAfter,
		},
		Render: map[int16]push.Render{
			a2a.PushV03: func(t *a2a.Task) []byte { return old.AppendSnapshot(nil, t) },
			a2a.PushV10: func(t *a2a.Task) []byte { return current.AppendSnapshot(nil, t) },
		},
		Slots: r.cfg.PushConcurrency, PerOrigin: r.cfg.PushPerDestination, Poll: min(r.cfg.PushPoll, r.cfg.PollInterval), MaxBody: int(r.cfg.PushMaxBody), Logger: r.logger, Tracer: r.tracer, Budget: r.budget,
	})
	r.warnOpenings(ctx)
	return nil
}

// pushPolicy says where webhooks may go: to none of our own listeners, and not to where callers reach them.
func (r *replica) pushPolicy(public string) (push.Policy, error) {
	var addrs []net.Addr
	for _, l := range r.listeners() {
		addrs = append(addrs, l.Addr())
	}
	self, err := push.Listening(addrs...)
	if err != nil {
		return push.Policy{}, err
	}
	origins := []string{public}
	if grpc := r.grpcReached(public); grpc != "" {
		origins = append(origins, "https://"+strings.ToLower(grpc), "http://"+strings.ToLower(grpc))
	}
	return push.Policy{
		Allow: r.cfg.PushAllowCIDRs, AllowHTTP: r.cfg.PushAllowHTTP, Self: self, SelfOrigins: origins, MaxURL: int(r.cfg.MaxPushURL),
	}, nil
}

// loadKeys reads what page tokens are sealed and webhooks signed with, or makes it.
func (r *replica) loadKeys(ctx context.Context) (err error) {
	secrets := make([]push.Secret, len(r.cfg.PushSigningSecrets))
	for i, s := range r.cfg.PushSigningSecrets {
		if secrets[i], err = push.ParseSecret(s.Reveal()); err != nil {
			return fmt.Errorf("A2AD_PUSH_SIGNING_SECRETS: %w", err)
		}
	}
	if r.pageKey, err = r.store.ServerKey(ctx, "page-token"); err != nil {
		return err
	}
	r.pushKeys = push.NewKeys(push.KeysConfig{Store: r.store, Ring: r.cfg.Keys, Secrets: secrets, Issuer: r.publicURL(), Logger: r.logger})
	if err := r.pushKeys.Load(ctx); err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	return nil
}

// warnOpenings says loudly where webhooks may go that they usually may not.
func (r *replica) warnOpenings(ctx context.Context) {
	if len(r.cfg.PushAllowCIDRs) > 0 {
		r.logger.WarnContext(ctx, "webhooks may go to private addresses", "A2AD_PUSH_ALLOW_CIDRS", r.cfg.PushAllowCIDRs)
	}
	if r.cfg.PushAllowHTTP {
		r.logger.WarnContext(ctx, "webhooks may go over http", "A2AD_PUSH_ALLOW_HTTP", "on")
	}
	if r.cfg.PushProxy != "" {
		r.logger.WarnContext(ctx, "webhooks go through a proxy, which must refuse private addresses itself", "A2AD_PUSH_PROXY", string(r.cfg.PushProxy))
	}
}

// pushRules says which webhooks clients may set.
func (r *replica) pushRules() engine.PushRules {
	limits := push.Limits{URL: int(r.cfg.MaxPushURL), Secret: int(r.cfg.MaxPushSecret)}
	return engine.PushRules{
		Max: r.cfg.MaxPushConfigs,
		Check: func(c *a2a.PushConfig) error {
			if err := push.CheckConfig(c, r.policy, limits); err != nil {
				return err
			}
			if r.cfg.Keys.Empty() && (c.Token != "" || c.Credentials != "") {
				return a2a.InvalidParams("pushNotificationConfig", "this server has no key to keep a token or credentials with")
			}
			return nil
		},
		Origin: func(raw string) string {
			u, err := r.policy.CheckURL(raw)
			if err != nil {
				return "" // Check has let it pass
			}
			return push.Origin(u)
		},
		Seal: func(row a2a.ID, c *a2a.PushConfig) (token, credentials []byte, err error) {
			return push.SealSecrets(r.cfg.Keys, row, c)
		},
		SealURL: func(row a2a.ID, url string) (string, []byte, error) { return push.SealURL(r.cfg.Keys, row, url) },
	}
}
