package push

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"time"
)

// ClientConfig says how requests to receivers are made. The zero value works: it has the limits of
// docs/reference/configuration.md and permits https to public addresses.
type ClientConfig struct {
	Policy Policy
	// UserAgent is the name of this server for receivers.
	UserAgent string

	Timeout       time.Duration // of a whole attempt; 0 means 15 s
	DialTimeout   time.Duration // of connecting, including name resolution; 0 means 5 s
	TLSTimeout    time.Duration // of a handshake; 0 means 5 s
	HeaderTimeout time.Duration // from the request's last byte to the answer's header; 0 means 10 s

	// ConnsPerHost bounds the connections to one host; it should be at least the number of deliveries at once to one
	// destination. 0 means 8.
	ConnsPerHost int
	ReadAnswer   int // bytes read from an answer; 0 means 16 KiB
	KeepAnswer   int // bytes kept of an answer; 0 means 4 KiB

	// Proxy, if set, receives all requests. Then the Policy sees only URLs and never their addresses: the proxy must
	// refuse addresses itself.
	Proxy *url.URL

	RootCAs  *x509.CertPool   // nil: the roots of the system
	Resolver *net.Resolver    // nil: Go's own, which does not read a number as an address
	Now      func() time.Time // for webhook-timestamp and tokens; nil: time.Now
}

const (
	maxAnswerHeader = 16 << 10
	idleConns       = 512
	// idleTimeout is shorter than in common servers (5 s in Node and uvicorn): a request on a connection that the other
	// end closes at that moment would count as a failure.
	idleTimeout = 4 * time.Second
)

// Client sends notifications. It is safe for concurrent use. Close it when done.
type Client struct {
	cfg       ClientConfig
	transport *http.Transport
}

// NewClient makes a Client. It starts nothing.
func NewClient(cfg ClientConfig) *Client {
	orDefault(&cfg.UserAgent, "a2ad")
	orDefault(&cfg.Timeout, 15*time.Second)
	orDefault(&cfg.DialTimeout, 5*time.Second)
	orDefault(&cfg.TLSTimeout, 5*time.Second)
	orDefault(&cfg.HeaderTimeout, 10*time.Second)
	orDefault(&cfg.ConnsPerHost, 8)
	orDefault(&cfg.ReadAnswer, 16<<10)
	orDefault(&cfg.KeepAnswer, 4<<10)
	if cfg.Resolver == nil {
		cfg.Resolver = &net.Resolver{PreferGo: true}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Client{cfg: cfg, transport: newTransport(&cfg)}
}

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func newTransport(cfg *ClientConfig) *http.Transport {
	guarded := &guardedDialer{policy: cfg.Policy, dialer: net.Dialer{Timeout: cfg.DialTimeout, Resolver: cfg.Resolver}}
	// Only HTTP/1.1: each request has a connection of its own, so the end of one attempt does not end another.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	t := &http.Transport{
		Proxy:                  nil, // not from the environment: the guard would only see the proxy's address
		DialContext:            fenced(guarded.DialContext),
		Protocols:              &protocols,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.RootCAs},
		TLSHandshakeTimeout:    cfg.TLSTimeout,
		ResponseHeaderTimeout:  cfg.HeaderTimeout,
		MaxResponseHeaderBytes: maxAnswerHeader,
		MaxConnsPerHost:        cfg.ConnsPerHost,
		MaxIdleConnsPerHost:    cfg.ConnsPerHost,
		MaxIdleConns:           idleConns,
		IdleConnTimeout:        idleTimeout,
		DisableCompression:     true, // the answer is kept unchanged, and cannot be a gzip bomb
	}
	if cfg.Proxy != nil {
		t.Proxy = http.ProxyURL(cfg.Proxy)
		t.DialContext = fenced((&net.Dialer{Timeout: cfg.DialTimeout, Resolver: cfg.Resolver}).DialContext)
	}
	return t
}

// Close ends connections that are not in use.
func (c *Client) Close() { c.transport.CloseIdleConnections() }
