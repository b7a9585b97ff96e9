package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/term"
)

const (
	fetchTimeout = 5 * time.Second
	cardPath     = "/.well-known/agent-card.json"

	fixListener = "Check that a2ad listens there, and read its log."
)

// fetch gets a page. A proxy is for pages on other machines.
func fetch(ctx context.Context, page string, proxy bool) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return 0, "", err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if proxy {
		transport.Proxy = http.ProxyFromEnvironment
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(text), err
}

// Server checks the listeners of a server on this machine, and its public URL.
func (d *Doctor) Server(ctx context.Context) {
	d.checkAdmin(ctx)
	d.checkAPI(ctx)
	d.checkPublicURL(ctx)
}

func (d *Doctor) checkAPI(ctx context.Context) {
	listen, f := d.Config.Listen, &d.Findings
	if listen == "" || listen.AnyPort() {
		return
	}
	at := "http://" + listen.Dial()
	switch status, body, err := fetch(ctx, at+cardPath, false); {
	case errors.Is(err, syscall.ECONNREFUSED):
		f.warn("api", "Start the server, or name its address (--listen), or pass --offline.",
			"no server answers at %s", at)
	case err != nil:
		f.fault("api", fixListener, "%s does not answer: %s", at, err)
	case status != http.StatusOK || !isCard(body):
		f.fault("api", fixListener, "%s answers %d without an agent card", at+cardPath, status)
	default:
		f.ok("api", "%s answers", at)
	}
}

func (d *Doctor) checkAdmin(ctx context.Context) {
	listen, f := d.Config.AdminListen, &d.Findings
	if listen == "" {
		f.note("admin", "", "A2AD_ADMIN_LISTEN is off: the server cannot be asked whether it is ready")
		return
	}
	if listen.AnyPort() {
		return
	}
	at := "http://" + listen.Dial()
	switch status, body, err := fetch(ctx, at+"/readyz", false); {
	case errors.Is(err, syscall.ECONNREFUSED):
		f.warn("admin", "Start the server, or name its address (--admin-listen), or pass --offline.",
			"no server answers at %s", at)
	case err != nil:
		f.fault("admin", fixListener, "%s does not answer: %s", at, err)
	case status != http.StatusOK:
		f.fault("admin", "", "the server at %s is not ready: %d %s", at, status,
			term.Shorten(strings.TrimSpace(body), 200))
	default:
		f.ok("admin", "the server at %s is ready", at)
	}
	switch {
	case listen.Loopback():
	case d.Container:
		f.note("admin", "", "A2AD_ADMIN_LISTEN is %s: do not publish this port, and let only operators reach it",
			listen)
	default:
		f.warn("admin", "Bind it to 127.0.0.1, or to an address that only operators can reach.",
			"A2AD_ADMIN_LISTEN is %s: any client that reaches it can read profiles and health without signing in",
			listen)
	}
}

func isCard(body string) bool {
	var card struct {
		Name string `json:"name"`
	}
	return json.Unmarshal([]byte(body), &card) == nil && card.Name != ""
}

func (d *Doctor) checkPublicURL(ctx context.Context) {
	const fix = "Check that DNS, the proxy in front and its certificate lead from here to the server, " +
		"with the path of A2AD_PUBLIC_URL."
	f, cfg := &d.Findings, &d.Config
	if cfg.PublicURL == "" {
		if !cfg.Listen.Loopback() {
			f.warn("public url", "Set A2AD_PUBLIC_URL to the address at which clients reach the server.",
				"A2AD_PUBLIC_URL is not set: agent cards name %s, which clients may not reach", cfg.Listen)
		}
		return
	}
	before, base := len(*f), strings.TrimSuffix(string(cfg.PublicURL), "/")
	u, err := url.Parse(base)
	if err != nil {
		f.fault("public url", "", "A2AD_PUBLIC_URL: %s", err)
		return
	}
	if u.Scheme != "https" && !loopbackHost(u.Hostname()) {
		f.warn("public url", "Put TLS in front, and write https://.",
			"%s is not https: API keys and tasks are sent unencrypted", base)
	}
	status, body, err := fetch(ctx, base+cardPath, !loopbackHost(u.Hostname()))
	switch {
	case err != nil:
		f.fault("public url", fix, "%s cannot be reached from here: %s", base, err)
	case status != http.StatusOK || !isCard(body):
		f.fault("public url", fix, "%s answers %d without an agent card", base+cardPath, status)
	case !strings.Contains(body, fmt.Sprintf("%q", base+"/")) && !strings.Contains(body, fmt.Sprintf("%q", base)):
		f.warn("public url", "Give all servers the same A2AD_PUBLIC_URL.",
			"the agent card at %s does not name this address: the server has a different A2AD_PUBLIC_URL", base)
	}
	f.okUnless(before, "public url", "%s leads to an agent card", base)
}

func loopbackHost(host string) bool {
	return config.Listen(net.JoinHostPort(host, "0")).Loopback()
}
