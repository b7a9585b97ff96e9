package push

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Version is the protocol version in which a receiver is notified, as it is stored.
type Version int16

// The versions.
const (
	V03 Version = 3
	V10 Version = 10
)

func (v Version) String() string { return strconv.Itoa(int(v)/10) + "." + strconv.Itoa(int(v)%10) }

func (v Version) mediaType() string {
	if v == V03 {
		return "application/json"
	}
	return "application/a2a+json"
}

// Request is one notification to one receiver. Everything except the time, and what is computed from it, is the same on
// every retry.
type Request struct {
	URL         string
	Version     Version
	ID          string     // webhook-id, and jti of a token
	Task        string     // sub and taskId of a token
	Body        []byte     // sent unchanged
	Token       a2a.Secret // for both token headers; empty: none
	Schemes     []string
	Credentials a2a.Secret // sent with the first of Schemes; empty: a token of Issuer if Bearer is one of Schemes
	Traceparent string     // of this request; empty: none
	Signer      *Signer    // nil: no signature
	Issuer      *Issuer    // nil: no tokens
	// LeaseValid is called before each write to the receiver. Once it returns false nothing more is sent, and the
	// attempt ends with ClassCanceled. nil: always valid.
	LeaseValid func() bool
}

// Format keeps the secrets of r out of printed text.
func (r Request) Format(f fmt.State, _ rune) { fmt.Fprint(f, "notification "+r.ID) }

// LogValue keeps the secrets of r out of logs.
func (r Request) LogValue() slog.Value { return slog.StringValue("notification " + r.ID) }

// errTimeout is the cause with which an attempt ends if it takes too long.
var errTimeout = errors.New("attempt took too long")

// Attempt makes one request and returns its result. It takes no longer than the timeout of the Client and follows no
// redirect. Only the status of the answer counts: an invalid body does not matter.
func (c *Client) Attempt(ctx context.Context, r Request) Result {
	start := time.Now()
	var seen observer
	res := c.attempt(ctx, &r, &seen)
	res.Took = time.Since(start)
	res.RemoteIP = seen.remoteIP()
	return res
}

func (c *Client) attempt(ctx context.Context, r *Request, seen *observer) Result {
	u, err := c.cfg.Policy.CheckURL(r.URL) // again: settings may have changed since it was stored
	if errors.Is(err, ErrBlocked) {
		return Result{Class: ClassBlocked, Reason: err.Error()}
	} else if err != nil {
		return Result{Class: ClassBadURL, Reason: err.Error()}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, errTimeout)
	defer cancel()
	now := c.cfg.Now()
	authorization, err := r.authorization(u, now)
	if err != nil {
		return Result{Class: ClassInternal, Reason: err.Error()}
	}
	ctx = httptrace.WithClientTrace(httptrace.WithClientTrace(ctx, fence(seen.observe(r.LeaseValid))), seen.trace())
	req, err := c.newRequest(ctx, r, u, now, authorization)
	if errors.Is(err, ErrBadID) {
		return Result{Class: ClassInternal, Reason: err.Error()}
	} else if err != nil {
		return Result{Class: ClassBadURL, Reason: err.Error()}
	}
	_, token, _ := strings.Cut(authorization, " ")
	secrets := newRedactor(append(querySecrets(u), string(r.Token), string(r.Credentials), token)...)
	// The transport, not an http.Client, which would follow redirects and send cookies and user info.
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		class, reason := c.classify(ctx, err, seen)
		return Result{Class: class, Reason: plain(secrets, reason)}
	}
	defer resp.Body.Close()
	res := Result{Class: classOf(resp.StatusCode), Status: resp.StatusCode, Directive: directive(resp.Header)}
	if resp.StatusCode != http.StatusSwitchingProtocols { // there the body is the connection
		head, _ := io.ReadAll(io.LimitReader(resp.Body, int64(c.cfg.ReadAnswer)))
		res.Answer = secrets.clean(head, c.cfg.KeepAnswer)
	}
	if res.Class != ClassDelivered {
		res.RetryAfter = retryAfter(resp.Header, now)
		res.Reason = plain(secrets, reasonOf(resp))
	}
	return res
}

// authorization returns the Authorization header, or nothing.
func (r *Request) authorization(u *url.URL, now time.Time) (string, error) {
	if r.Credentials != "" {
		if len(r.Schemes) == 0 {
			return "", nil
		}
		return r.Schemes[0] + " " + string(r.Credentials), nil
	}
	for _, s := range r.Schemes {
		if strings.EqualFold(s, "Bearer") && r.Issuer != nil {
			token, err := r.Issuer.Mint(Claims{Audience: Origin(u), Task: r.Task, ID: r.ID, Body: r.Body}, now)
			return "Bearer " + token, err
		}
	}
	return "", nil
}

// newRequest makes the request with its headers. A value that no header may have is an error here, because the
// transport would find it too, and quote it.
func (c *Client) newRequest(
	ctx context.Context, r *Request, u *url.URL, now time.Time, authorization string,
) (*http.Request, error) {
	signature, err := r.Signer.Sign(r.ID, now, r.Body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, ErrBadURL
	}
	for _, h := range [][2]string{
		{"Content-Type", r.Version.mediaType()},
		{"A2A-Version", r.Version.String()},
		{"User-Agent", c.cfg.UserAgent},
		{"Authorization", authorization},
		{"X-A2A-Notification-Token", string(r.Token)}, // 0.3, Python, Java
		{"A2A-Notification-Token", string(r.Token)},   // Go
		{"Webhook-Id", r.ID},
		{"Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10)},
		{"Webhook-Signature", signature},
		{"Traceparent", r.Traceparent},
	} {
		if h[1] == "" {
			continue
		}
		if !httpguts.ValidHeaderFieldValue(h[1]) {
			return nil, fmt.Errorf("the configured value of the header %s is not valid in HTTP", h[0])
		}
		req.Header.Set(h[0], h[1])
	}
	return req, nil
}
