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

// cards keeps what the newest card says.
type cards struct {
	e       *Executor
	origins []string      // that may be asked: first that of the card
	busy    chan struct{} // held by the one who asks

	mu   sync.Mutex
	at   *endpoint // guarded by mu; nil until there was a card
	seen time.Time // guarded by mu; zero: to be asked again
}

// get returns where the upstream is. An upstream that does not give its card now is where its
// last one said.
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
		return at, nil // somebody else has asked meanwhile
	}
	next, err := c.fetch(ctx)
	if err != nil {
		if at != nil && context.Cause(ctx) == nil {
			c.e.c.Log.WarnContext(ctx, "upstream gives no new card", "err", err)
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

// doubt has the card read again before it is used next.
func (c *cards) doubt() {
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
		body, _ := c.e.readAll(resp.Body, maxRefusal) // as much of a reason as there is
		return nil, fmt.Errorf("read the upstream's card: %w", refusalOf(resp, body))
	}
	body, err := c.e.readAll(resp.Body, maxCard)
	if err != nil {
		return nil, lost(ctx, "read the upstream's card", false, err)
	}
	card, err := answer.DecodeCard(body)
	if err != nil {
		return nil, invalid("the upstream's card: %w", err)
	}
	return c.choose(&card)
}

const maxCard = 1 << 20

// choose takes the first interface of the newest generation that is on a server that may be asked. A card is written by
// others: what it says does not send our POSTs, and what headers prove, to servers that nobody here has named.
func (c *cards) choose(card *answer.Card) (*endpoint, error) {
	elsewhere := ""
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
				return nil, invalid("the upstream's card: %w", err)
			}
			if slices.Contains(c.origins, origin) {
				return at, nil
			}
			elsewhere = cmp.Or(elsewhere, origin)
		}
	}
	if elsewhere != "" {
		c.e.c.Log.Error("the upstream's card leads to a server that allow_origins of the agent file does not name", "card", c.origins[0], "interface", elsewhere)
		return nil, executor.Permanent(errors.New("the upstream's card leads to another server than its own, which the agent file does not allow"))
	}
	want := "0.3 or 1.0"
	if c.e.c.Version != "" {
		want = c.e.c.Version
	}
	return nil, executor.Permanent(fmt.Errorf("the upstream's card offers no JSON-RPC interface of A2A %s", want))
}

// resolve makes an address of one that is relative to that of the card.
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
