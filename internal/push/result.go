package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Class is the result of an attempt in one word, as the ledger and the metrics show it.
type Class string

// The results of attempts.
const (
	ClassDelivered   Class = "delivered"    // 2xx
	ClassGone        Class = "gone"         // 410: the receiver wants no more
	ClassRedirect    Class = "redirect"     // 3xx, which is not followed
	ClassClientError Class = "client_error" // any other 4xx
	ClassThrottled   Class = "throttled"    // 429, 502, 503, 504
	ClassServerError Class = "server_error" // any other status, or an answer that is not HTTP
	ClassTimeout     Class = "timeout"      // no connection or no answer in time
	ClassDNS         Class = "dns"          // the name has no address
	ClassConnect     Class = "connect"      // no connection, or it broke before an answer
	ClassTLS         Class = "tls"          // no handshake, or the wrong certificate
	ClassBlocked     Class = "blocked"      // the Policy permits none of its addresses: permanent
	ClassBadURL      Class = "bad_url"      // it cannot be sent as configured: permanent
	ClassCanceled    Class = "canceled"     // the caller's context or lease ended: says nothing about the receiver
	ClassInternal    Class = "internal"     // a fault of this server
)

// Results without a request, which are not counted in metrics.
const (
	classSecret      Class = "secret"      // a stored secret cannot be decrypted: permanent
	classUnavailable Class = "unavailable" // the task cannot be read now; not recorded
)

// Classes are the classes of requests.
var Classes = []Class{
	ClassDelivered, ClassGone, ClassRedirect, ClassClientError, ClassThrottled, ClassServerError, ClassTimeout,
	ClassDNS, ClassConnect, ClassTLS, ClassBlocked, ClassBadURL, ClassCanceled, ClassInternal,
}

// Directive is what a receiver asks for in the header webhook-delivery of its answer.
type Directive string

// The supported directives. A receiver that sends another one is ignored.
const (
	DirectiveNone    Directive = ""
	DirectiveDisable Directive = "disable"       // send nothing more to this webhook
	DirectiveAbort   Directive = "abort-message" // do not send this notification again
)

// Result is the result of an attempt.
type Result struct {
	Class      Class
	Status     int           // 0: there was no answer
	Reason     string        // for operators; empty if delivered
	RetryAfter time.Duration // what the answer asked for; 0: nothing
	Directive  Directive
	RemoteIP   string // of the connection, or of the last try to connect; empty: none
	Took       time.Duration
	Answer     []byte // the beginning of the answer's body, without secrets of the webhook
}

func classOf(status int) Class {
	switch {
	case status >= 200 && status < 300:
		return ClassDelivered
	case status >= 300 && status < 400:
		return ClassRedirect
	case status == http.StatusGone:
		return ClassGone
	case status == http.StatusTooManyRequests, status == http.StatusBadGateway,
		status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
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
	if to, err := resp.Location(); err == nil && to.Host != "" { // only its origin: the rest may contain secrets
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

// maxRetryAfter bounds what is read from Retry-After. Schedule.Next limits it further.
const maxRetryAfter = 365 * 24 * time.Hour

// retryAfter reads seconds or a date. A date is compared with the date of the answer, because the receiver's clock may
// differ from this server's.
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

// classify says why there was no answer.
func (c *Client) classify(ctx context.Context, err error, seen *observer) (Class, string) {
	var dns *net.DNSError
	var netErr net.Error
	switch cause := context.Cause(ctx); {
	case errors.Is(err, errLeaseExpired), seen.wasFenced(): // the transport may only report that the connection ended
		return ClassCanceled, errLeaseExpired.Error()
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
	case seen.failedTLS():
		return ClassTLS, err.Error()
	case seen.wasAnswering(): // the error quotes the answer, which may contain secrets in pieces
		return ClassServerError, "broken answer: not HTTP/1.1, a header of more than 16 KiB, or cut short"
	case errors.Is(err, io.EOF):
		return ClassConnect, "the connection was closed before an answer"
	}
	return ClassConnect, err.Error()
}

const maxReason = 500

// plain makes a reason safe for a line in a terminal: errors of the transport may quote what the receiver sent.
func plain(secrets redactor, reason string) string {
	reason = string(secrets.clean([]byte(reason), maxReason))
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(reason, "?"))
}
