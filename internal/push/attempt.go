package push

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Version is the protocol generation in which a receiver is spoken to, as it is stored.
type Version int16

// The generations.
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

// Request is one notification to one receiver. Everything but the time and what follows
// from it is the same on every retry.
type Request struct {
	URL         string
	Version     Version
	ID          string     // webhook-id, and jti of a token
	Task        string     // sub and taskId of a token
	Body        []byte     // sent as it is
	Token       a2a.Secret // for both token headers; empty: none
	Schemes     []string
	Credentials a2a.Secret // sent with the first of Schemes; empty: a token of Issuer's if Bearer is one of Schemes
	Traceparent string     // of the step that this request is; empty: none
	Signer      *Signer    // nil: no signature
	Issuer      *Issuer    // nil: no tokens
	// Held is asked before each write to the receiver. Once it reports false nothing more is
	// sent, and the attempt ends with ClassCanceled. nil: always.
	Held func() bool
}

// Format keeps what r holds of secrets out of whatever prints it.
func (r Request) Format(f fmt.State, _ rune) { fmt.Fprint(f, "notification "+r.ID) }

// LogValue keeps logs from it.
func (r Request) LogValue() slog.Value { return slog.StringValue("notification " + r.ID) }

// Class says in a word what became of an attempt. It is what the ledger and metrics show.
type Class string

// What becomes of attempts.
const (
	ClassDelivered   Class = "delivered"    // 2xx
	ClassGone        Class = "gone"         // 410: the receiver wants no more
	ClassRedirect    Class = "redirect"     // 3xx, which is not followed
	ClassClientError Class = "client_error" // any other 4xx
	ClassThrottled   Class = "throttled"    // 429, 502, 503, 504
	ClassServerError Class = "server_error" // any other status, or what is not HTTP
	ClassTimeout     Class = "timeout"      // no connection or no answer in time
	ClassDNS         Class = "dns"          // the name has no address
	ClassConnect     Class = "connect"      // no connection, or it broke before an answer
	ClassTLS         Class = "tls"          // no handshake, or not the right certificate
	ClassBlocked     Class = "blocked"      // the Policy permits none of its addresses: permanent
	ClassBadURL      Class = "bad_url"      // it cannot be sent as it is configured: permanent
	ClassCanceled    Class = "canceled"     // the caller's context or lease ended: says nothing about the receiver
	ClassInternal    Class = "internal"     // a fault of ours
)

// Classes are all that there are.
var Classes = []Class{
	ClassDelivered, ClassGone, ClassRedirect, ClassClientError, ClassThrottled, ClassServerError, ClassTimeout, ClassDNS, ClassConnect,
	ClassTLS, ClassBlocked, ClassBadURL, ClassCanceled, ClassInternal,
}

// Directive is what a receiver asks for in the header webhook-delivery of its answer.
type Directive string

// Directives that are heeded.
const (
	DirectiveNone    Directive = ""
	DirectiveDisable Directive = "disable"       // send nothing more to this webhook
	DirectiveAbort   Directive = "abort-message" // do not send this notification again
)

// Result is what became of an attempt.
type Result struct {
	Class      Class
	Status     int           // 0: there was no answer
	Reason     string        // for operators; empty if delivered
	RetryAfter time.Duration // what the answer asked for; 0: nothing
	Directive  Directive
	RemoteIP   string // that was connected to, or tried last; empty: none
	Took       time.Duration
	Answer     []byte // the head of the answer's body, without our secrets
}

// errTimeout is the cause with which an attempt ends that takes too long.
var errTimeout = errors.New("attempt took too long")

// Attempt makes one request and reports what became of it. It takes no longer than the
// timeout of the Client and follows no redirect. The answer is acknowledged by its status:
// what is wrong with its body does not matter.
func (c *Client) Attempt(ctx context.Context, r Request) Result {
	start := time.Now()
	var seen sighting
	res := c.attempt(ctx, &r, &seen)
	res.Took = time.Since(start)
	res.RemoteIP = seen.remoteIP()
	return res
}

func (c *Client) attempt(ctx context.Context, r *Request, seen *sighting) Result {
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
	ctx = httptrace.WithClientTrace(httptrace.WithClientTrace(ctx, fence(seen.fenced(r.Held))), seen.trace())
	req, err := c.newRequest(ctx, r, u, now, authorization)
	if errors.Is(err, ErrBadID) {
		return Result{Class: ClassInternal, Reason: err.Error()}
	} else if err != nil {
		return Result{Class: ClassBadURL, Reason: err.Error()}
	}
	_, token, _ := strings.Cut(authorization, " ")
	secrets := newRedactor(append(querySecrets(u), string(r.Token), string(r.Credentials), token)...)
	// The transport, not an http.Client: that one brings redirects, cookies and user info.
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

// newRequest makes the request with its headers. What no header can hold is an error: the
// transport would find it too, and quote it.
func (c *Client) newRequest(ctx context.Context, r *Request, u *url.URL, now time.Time, authorization string) (*http.Request, error) {
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
			return nil, fmt.Errorf("what was configured for the header %s cannot be sent in one", h[0])
		}
		req.Header.Set(h[0], h[1])
	}
	return req, nil
}

func classOf(status int) Class {
	switch {
	case status >= 200 && status < 300:
		return ClassDelivered
	case status >= 300 && status < 400:
		return ClassRedirect
	case status == http.StatusGone:
		return ClassGone
	case status == http.StatusTooManyRequests, status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return ClassThrottled
	case status >= 400 && status < 500:
		return ClassClientError
	}
	return ClassServerError
}

func reasonOf(resp *http.Response) string {
	reason := "answered " + strconv.Itoa(resp.StatusCode)
	if text := http.StatusText(resp.StatusCode); text != "" {
		reason += " " + text
	}
	if resp.StatusCode < 300 || resp.StatusCode >= 400 {
		return reason
	}
	if to, err := resp.Location(); err == nil && to.Host != "" { // no more of it than the origin: the rest may hold secrets
		reason += " to " + Origin(to)
	}
	return reason + "; redirects are not followed"
}

func directive(h http.Header) Directive {
	switch d := Directive(strings.ToLower(strings.TrimSpace(h.Get("Webhook-Delivery")))); d {
	case DirectiveDisable, DirectiveAbort:
		return d
	}
	return DirectiveNone
}

// maxRetryAfter bounds what is read of Retry-After, far above what is heeded.
const maxRetryAfter = 365 * 24 * time.Hour

// retryAfter reads seconds or a date. A date is taken against that of the answer, as the
// receiver's clock need not be ours.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if strings.Trim(text, "0123456789") == "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// classify says what kept an answer from coming.
func (c *Client) classify(ctx context.Context, err error, seen *sighting) (Class, string) {
	var dns *net.DNSError
	var netErr net.Error
	switch cause := context.Cause(ctx); {
	case errors.Is(err, errNotHeld), seen.wasFenced(): // the transport may name the read that ended with the connection
		return ClassCanceled, errNotHeld.Error()
	case errors.Is(err, ErrBlocked):
		return ClassBlocked, err.Error()
	case errors.Is(cause, errTimeout):
		return ClassTimeout, fmt.Sprintf("no answer within %s", c.cfg.Timeout)
	case cause != nil:
		return ClassCanceled, "canceled: " + cause.Error()
	case errors.As(err, &dns):
		return ClassDNS, err.Error()
	case errors.As(err, &netErr) && netErr.Timeout():
		return ClassTimeout, err.Error()
	case seen.brokenTLS():
		return ClassTLS, err.Error()
	case seen.answering(): // the error quotes the answer, and with it perhaps our secrets, in pieces
		return ClassServerError, "broken answer: not HTTP/1.1, a header of more than 16 KiB, or cut short"
	case errors.Is(err, io.EOF):
		return ClassConnect, "the connection was closed before an answer"
	}
	return ClassConnect, err.Error()
}

const maxReason = 500

// plain makes a reason fit for a line in a terminal: errors of the transport may quote what
// the receiver sent.
func plain(secrets redactor, reason string) string {
	reason = string(secrets.clean([]byte(reason), maxReason))
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(reason, "?"))
}

// sighting is what was seen of a connection. A dial may go on when its attempt is over.
type sighting struct {
	mu       sync.Mutex
	address  string // guarded by mu, like all of it
	tlsError bool
	answer   bool
	refused  bool // a write, since the lease was over
}

// fenced returns held, and notes when it says no.
func (s *sighting) fenced(held func() bool) func() bool {
	if held == nil {
		return nil
	}
	return func() bool {
		ok := held()
		if !ok {
			s.set(func() { s.refused = true })
		}
		return ok
	}
}

func (s *sighting) wasFenced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

func (s *sighting) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		ConnectStart: func(_, address string) { s.set(func() { s.address = address }) },
		GotConn:      func(i httptrace.GotConnInfo) { s.set(func() { s.address = i.Conn.RemoteAddr().String() }) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			s.set(func() { s.tlsError = err != nil })
		},
		GotFirstResponseByte: func() { s.set(func() { s.answer = true }) },
	}
}

func (s *sighting) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *sighting) remoteIP() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	host, _, err := net.SplitHostPort(s.address)
	if err != nil {
		return ""
	}
	return host
}

func (s *sighting) brokenTLS() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tlsError
}

func (s *sighting) answering() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer
}
