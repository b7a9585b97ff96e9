package a2a

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/wire/answer"
)

// cards caches the endpoint of the newest card.
type cards struct {
	e       *Executor
	origins []string      // servers that may be called; the card's is the first
	busy    chan struct{} // capacity 1; full while a caller reads the card

	mu   sync.Mutex
	at   *endpoint // guarded by mu; nil until a card was read
	seen time.Time // guarded by mu; zero: the card must be read again
}

// get returns the endpoint of the upstream. If the card cannot be read now, that is the endpoint of the last card.
func (c *cards) get(ctx context.Context) (*endpoint, error) {
	if at, fresh := c.known(); fresh {
		return at, nil
	}
	select {
	case c.busy <- struct{}{}:
		defer func() { <-c.busy }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	at, fresh := c.known()
	if fresh {
		return at, nil // another caller has read it in the meantime
	}
	next, err := c.fetch(ctx)
	if err != nil {
		if at != nil && context.Cause(ctx) == nil {
			c.e.c.Log.WarnContext(ctx, "read the upstream's card again", "err", err)
			return at, nil
		}
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.seen = next, time.Now()
	return next, nil
}

func (c *cards) known() (at *endpoint, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at, c.at != nil && time.Since(c.seen) < c.e.c.CardAge
}

// expire makes the next get read the card again.
func (c *cards) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = time.Time{}
}

func (c *cards) fetch(ctx context.Context) (*endpoint, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errSlow)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.e.c.Card, nil)
	if err != nil {
		return nil, executor.Permanent(err)
	}
	req.Header = c.e.header("1.0")
	req.Header.Set("Accept", "application/json")
	resp, err := c.e.http.Do(req)
	if err != nil {
		return nil, lost(ctx, "read the upstream's card", false, err)
	}
	defer closeBody(resp)
	if resp.StatusCode != http.StatusOK {
		body, _ := c.e.readAll(resp.Body, maxRefusal) // the part of the reason that can be read
		return nil, fmt.Errorf("read the upstream's card: %w", refusalOf(resp, body))
	}
	body, err := c.e.readAll(resp.Body, maxCard)
	if err != nil {
		return nil, lost(ctx, "read the upstream's card", false, err)
	}
	card, err := answer.DecodeCard(body)
	if err != nil {
		return nil, executor.InvalidResponse("the upstream's card: %w", err)
	}
	return c.choose(&card)
}

const maxCard = 1 << 20

// choose returns the first interface of the newest protocol version on a server that may be called. The upstream
// writes the card, so the card must not be able to send requests, with their credentials, to servers that the
// operator has not named.
func (c *cards) choose(card *answer.Card) (*endpoint, error) {
	refused := "" // the first origin that may not be called
	for _, d := range dialects {
		if v := c.e.c.Version; v != "" && v != d.version {
			continue
		}
		for _, i := range card.Interfaces {
			if i.Version != d.version || !strings.EqualFold(i.Binding, "JSONRPC") {
				continue
			}
			at := &endpoint{dialect: d, url: c.resolve(i.URL), streaming: card.Streaming}
			if d.version != "0.3" {
				at.tenant = i.Tenant
			}
			origin, err := originOf(at.url)
			if err != nil {
				return nil, executor.InvalidResponse("the upstream's card: %w", err)
			}
			if slices.Contains(c.origins, origin) {
				return at, nil
			}
			refused = cmp.Or(refused, origin)
		}
	}
	if refused != "" {
		c.e.c.Log.Error("the upstream's card refers to a server that allow_origins of the agent file does not list",
			"card", c.origins[0], "interface", refused)
		return nil, executor.Permanent(
			errors.New("the upstream's card refers to another server, which the agent file does not allow"))
	}
	want := "0.3 or 1.0"
	if c.e.c.Version != "" {
		want = c.e.c.Version
	}
	return nil, executor.Permanent(fmt.Errorf("the upstream's card offers no JSON-RPC interface of A2A %s", want))
}

// resolve returns the absolute form of a URL that may be relative to the card's.
func (c *cards) resolve(ref string) string {
	base, err := url.Parse(c.e.c.Card)
	if err != nil {
		return ref
	}
	u, err := base.Parse(ref)
	if err != nil {
		return ref
	}
	return u.String()
}

// originOf returns scheme, host and port of an http URL.
func originOf(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return "", fmt.Errorf("%.200q is not an http or https URL", address)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port, nil
}
