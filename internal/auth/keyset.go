package auth

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/a2ad/a2ad/internal/rawjson"
)

const (
	keysFresh    = 5 * time.Minute  // age after which keys are read again
	keysStale    = time.Hour        // age up to which keys are used while the issuer is unreachable
	keysCooldown = 10 * time.Second // least time between two requests to the issuer, whatever the tokens say
	kidIgnored   = time.Minute      // how long an unknown key id causes no further request
	keysTimeout  = 5 * time.Second
	maxKeysBody  = 512 << 10
	maxKeySet    = 100 // keys, and remembered unknown ids
	minRSABits   = 2048
)

// keySet holds the public keys of an issuer as they were last read. An unknown key id causes
// another read, but not often: anyone can invent ids.
type keySet struct {
	issuer, url string
	client      *http.Client
	now         func() time.Time

	mu      sync.Mutex
	keys    []jose.JSONWebKey    // guarded by mu
	read    time.Time            // guarded by mu; when keys was read
	tried   time.Time            // guarded by mu; when the last attempt to read began
	err     error                // guarded by mu; of the last attempt
	ignored map[string]time.Time // guarded by mu; ids that the issuer did not know at that time
	reading chan struct{}        // guarded by mu; closed at the end of the current attempt
}

func newKeySet(cfg JWTConfig) *keySet {
	k := &keySet{
		issuer: cfg.Issuer, url: cfg.JWKSURL, now: cfg.now, err: errors.New("not read yet"),
		ignored: make(map[string]time.Time),
		client: &http.Client{Timeout: keysTimeout, Transport: bounded{cfg.Transport},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	return k
}

// run reads the keys periodically.
func (k *keySet) run(ctx context.Context) error {
	for {
		k.refresh(ctx)
		k.mu.Lock()
		wait := keysFresh
		if k.err != nil {
			wait = keysCooldown
		}
		k.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// verify returns the payload of a token signed by one of the keys.
func (k *keySet) verify(ctx context.Context, jws *jose.JSONWebSignature) ([]byte, error) {
	header := jws.Signatures[0].Protected
	keys, ok := k.find(header.KeyID)
	if !ok {
		k.refresh(ctx)
		keys, _ = k.find(header.KeyID)
	}
	for i := range keys {
		if keys[i].Algorithm != "" && keys[i].Algorithm != header.Algorithm {
			continue
		}
		if payload, err := jws.Verify(&keys[i]); err == nil {
			return payload, nil
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.outdated():
		return nil, unavailable(k.err)
	case len(keys) > 0:
		return nil, refuse("bad signature", "")
	}
	if len(k.ignored) >= maxKeySet {
		clear(k.ignored)
	}
	if len(header.KeyID) <= maxName {
		k.ignored[header.KeyID] = k.now().Add(kidIgnored)
	}
	return nil, refuse("unknown signing key", "")
}

// find returns the keys with an id, or all if the token names none. If ok is false the issuer
// should be asked.
func (k *keySet) find(kid string) (found []jose.JSONWebKey, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.outdated() {
		return nil, false
	}
	for _, key := range k.keys {
		if kid == "" || key.KeyID == kid {
			found = append(found, key)
		}
	}
	return found, len(found) > 0 || k.now().Before(k.ignored[kid])
}

// outdated reports whether the keys are too old to use. The caller holds k.mu.
func (k *keySet) outdated() bool { return k.read.IsZero() || k.now().Sub(k.read) > keysStale }

// refresh reads the keys, unless an attempt was made a moment ago. Concurrent callers wait for a
// single attempt.
func (k *keySet) refresh(ctx context.Context) {
	k.mu.Lock()
	if reading := k.reading; reading != nil {
		k.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
		}
		return
	}
	if k.now().Sub(k.tried) < keysCooldown {
		k.mu.Unlock()
		return
	}
	reading := make(chan struct{})
	k.reading, k.tried = reading, k.now()
	k.mu.Unlock()
	keys, err := k.load(context.WithoutCancel(ctx)) // other callers wait too; the client has a timeout
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reading, k.err = nil, err
	close(reading)
	if err == nil {
		k.keys, k.read = keys, k.now()
		clear(k.ignored)
	}
}

// load finds out where the issuer's keys are, unless that is configured, and reads them.
func (k *keySet) load(ctx context.Context) ([]jose.JSONWebKey, error) {
	at := k.url
	if at == "" {
		doc, err := k.discover(ctx, k.client)
		if err != nil {
			return nil, fmt.Errorf("discover issuer: %w", err)
		}
		if at = doc.text("jwks_uri"); !private(at) {
			return nil, fmt.Errorf("discover issuer: its keys are at %q, which is not https", at)
		}
	}
	body, err := get(ctx, k.client, at)
	if err != nil {
		return nil, fmt.Errorf("read key set: %w", err)
	}
	return parseKeySet(body)
}

// discover returns what the issuer says about itself (OpenID Connect Discovery).
func (k *keySet) discover(ctx context.Context, client *http.Client) (members, error) {
	body, err := get(ctx, client, strings.TrimSuffix(k.issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return nil, err
	}
	doc, err := readMembers(body)
	if err != nil {
		return nil, err
	}
	if issuer := doc.text("issuer"); issuer != k.issuer {
		return nil, fmt.Errorf("it calls itself %q and not %q", issuer, k.issuer)
	}
	return doc, nil
}

// get reads a document of the issuer.
func get(ctx context.Context, client *http.Client, at string) ([]byte, error) {
	//nolint:gosec // configured by the operator, or https as the issuer says: see private
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	status, body, err := do(client, req)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	}
	return body, err
}

// do sends a request to the issuer.
func do(client *http.Client, req *http.Request) (status int, body []byte, err error) {
	resp, err := client.Do(req) //nolint:gosec // the URL was checked by the caller
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// private reports whether the network cannot change what a URL returns: the URL uses https, or names
// this machine.
func private(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" {
		return err == nil && u.Scheme == "https" && u.Host != ""
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// parseKeySet returns the signing keys, and skips keys of unknown kinds.
func parseKeySet(body []byte) ([]jose.JSONWebKey, error) {
	set, err := readMembers(body)
	if err == nil && rawjson.KindOf(set["keys"]) != rawjson.KindArray {
		err = errors.New("it has no list of keys")
	}
	if err != nil {
		return nil, fmt.Errorf("read key set: %w", err)
	}
	var keys []jose.JSONWebKey
	for raw := range rawjson.Elements(set["keys"]) {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil || !key.Valid() || key.Use != "" && key.Use != "sig" {
			continue
		}
		if key = key.Public(); !key.Valid() { // a symmetric key has no public half
			continue
		}
		if r, ok := key.Key.(*rsa.PublicKey); ok && r.N.BitLen() < minRSABits {
			continue
		}
		if keys = append(keys, key); len(keys) == maxKeySet {
			break
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("read key set: no key in it can verify tokens")
	}
	return keys, nil
}

// bounded is a transport that limits how long an answer may take.
type bounded struct{ http.RoundTripper }

// RoundTrip makes a request.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	next := b.RoundTripper
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxKeysBody)
	}
	return resp, err
}
