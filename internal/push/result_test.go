package push

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestDirectivesOfAnswers(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		status    int
		header    map[string]string
		after     time.Duration
		directive Directive
	}{
		"seconds":             {503, map[string]string{"Retry-After": "120"}, 2 * time.Minute, ""},
		"seconds with spaces": {429, map[string]string{"Retry-After": " 5 "}, 5 * time.Second, ""},
		"more than there are": {429, map[string]string{"Retry-After": "99999999999999999999999"}, maxRetryAfter,
			""},
		"a long time": {429, map[string]string{"Retry-After": "9999999999"}, maxRetryAfter, ""},
		"date": {503, map[string]string{"Retry-After": "Fri, 20 Nov 2026 10:01:00 GMT", "Date": ""},
			time.Minute, ""},
		"date of a wrong clock": {503,
			map[string]string{"Retry-After": "Fri, 20 Nov 2020 10:01:00 GMT",
				"Date": "Fri, 20 Nov 2020 10:00:30 GMT"}, 30 * time.Second, ""},
		"date that has passed": {503, map[string]string{"Retry-After": "Fri, 20 Nov 2026 09:00:00 GMT", "Date": ""},
			0, ""},
		"negative":                {503, map[string]string{"Retry-After": "-5"}, 0, ""},
		"nonsense":                {503, map[string]string{"Retry-After": "soon"}, 0, ""},
		"fraction":                {503, map[string]string{"Retry-After": "1.5"}, 0, ""},
		"delivered":               {200, map[string]string{"Retry-After": "5"}, 0, ""},
		"disable":                 {500, map[string]string{"webhook-delivery": "disable"}, 0, DirectiveDisable},
		"abort":                   {400, map[string]string{"Webhook-Delivery": " Abort-Message "}, 0, DirectiveAbort},
		"disable while taking it": {200, map[string]string{"webhook-delivery": "disable"}, 0, DirectiveDisable},
		"unknown directive":       {500, map[string]string{"webhook-delivery": "explode"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSink(t, func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range tt.header {
					w.Header()[http.CanonicalHeaderKey(k)] = []string{v}
				}
				w.WriteHeader(tt.status)
			})
			res := newClient(t, ClientConfig{Policy: dev, Now: func() time.Time { return now }}).Attempt(t.Context(),
				request(s.URL))
			if res.RetryAfter != tt.after || res.Directive != tt.directive {
				t.Errorf("got %s and %q, want %s and %q", res.RetryAfter, res.Directive, tt.after, tt.directive)
			}
		})
	}
}

// TestEchoedSecretsAreNotKept: if a receiver repeats all it got, the stored answer has no secrets.
func TestEchoedSecretsAreNotKept(t *testing.T) {
	t.Parallel()
	const canary = `canary"<&/ 1234`
	echo := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_ = r.Header.Write(w)
		fmt.Fprintf(w, "%q", r.Header)
	}
	for name, handler := range map[string]http.HandlerFunc{
		"body": echo,
		"status line": func(w http.ResponseWriter, r *http.Request) {
			raw("HTTP/1.1 bad "+r.Header.Get("Authorization")+"\r\n\r\n", nil)(w, r)
		},
		"no HTTP": func(w http.ResponseWriter,
			r *http.Request) {
			raw(r.Header.Get("Authorization")+"\r\n\r\n", nil)(w, r)
		},
		"content type": func(w http.ResponseWriter, r *http.Request) {
			raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: "+r.Header.Get("X-A2a-Notification-Token")+"\r\n\r\n", nil)(w, r)
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Location"] = []string{"https://x.example/?" +
				url.QueryEscape(r.Header.Get("A2a-Notification-Token")) + r.Header.Get("A2a-Notification-Token")}
			w.WriteHeader(http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSink(t, handler)
			r := request(s.URL)
			r.Token, r.Schemes, r.Credentials = canary, []string{"Bearer"}, canary
			res := newClient(t, ClientConfig{Policy: dev}).Attempt(t.Context(), r)
			if text := res.Reason + string(res.Answer); strings.Contains(text, "canary\"") ||
				strings.Contains(text, `canary\"`) {
				t.Errorf("kept %q, %q", res.Reason, res.Answer)
			}
			if len(res.Reason) > maxReason+len(redacted) || strings.ContainsAny(res.Reason, "\r\n") {
				t.Errorf("reason %q", res.Reason)
			}
		})
	}
}

func TestRequestsPrintNoSecrets(t *testing.T) {
	t.Parallel()
	r := request("https://example.com/?hunter2")
	r.Token, r.Credentials, r.Body = "hunter2", "hunter2", []byte("hunter2")
	var out bytes.Buffer
	for _, v := range []any{r, &r, struct{ R Request }{r}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", v)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "r", r, "p", &r)
	if strings.Contains(out.String(), "hunter2") || strings.Contains(out.String(), fmt.Sprintf("%x", "hunter2")) ||
		!strings.Contains(out.String(), r.ID) {
		t.Errorf("seen:\n%s", &out)
	}
}

// TestFencedRequestIsCanceledForAnyTransportError: when a write is refused the transport closes the
// connection, and may report the read that this ended. The destination is not at fault.
func TestFencedRequestIsCanceledForAnyTransportError(t *testing.T) {
	t.Parallel()
	var seen observer
	valid := seen.observe(func() bool { return false })
	c := newClient(t, ClientConfig{Policy: dev})
	if class, reason := c.classify(t.Context(), net.ErrClosed, &seen); class != ClassConnect {
		t.Errorf("before any write: %s, %s", class, reason)
	}
	if valid() {
		t.Fatal("the lease is valid")
	}
	if class, reason := c.classify(t.Context(), net.ErrClosed, &seen); class != ClassCanceled ||
		reason != errLeaseExpired.Error() {
		t.Errorf("after a refused write: %s, %s", class, reason)
	}
}
