package main

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

const lookTimeout = 5 * time.Second

// look asks for a page, without a proxy unless it is out in the world.
func look(ctx context.Context, page string, proxy bool) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
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

const cardPath = "/.well-known/agent-card.json"

// checkServer looks at the listeners of a server on this machine, and at where clients find it.
func (c *DoctorCmd) checkServer(ctx context.Context, f *findings) {
	c.checkAdmin(ctx, f)
	if c.Listen != "" && !strings.HasSuffix(string(c.Listen), ":0") {
		at := "http://" + c.Listen.Dial()
		switch status, body, err := look(ctx, at+cardPath, false); {
		case errors.Is(err, syscall.ECONNREFUSED):
			f.warn("api", "Start the server; or say where it is (--listen), or that there is none (--offline).", "no server answers at %s", at)
		case err != nil:
			f.fault("api", "See whether it is a2ad that listens there, and what its log says.", "%s does not answer: %s", at, err)
		case status != http.StatusOK || !isCard(body):
			f.fault("api", "See whether it is a2ad that listens there, and what its log says.", "%s answers %d and not with an agent card", at+cardPath, status)
		default:
			f.ok("api", "%s answers", at)
		}
	}
	c.checkPublic(ctx, f)
}

func (c *DoctorCmd) checkAdmin(ctx context.Context, f *findings) {
	if c.AdminListen == "" {
		f.note("admin", "", "A2AD_ADMIN_LISTEN is off: nothing can ask whether the server is ready")
		return
	}
	if strings.HasSuffix(string(c.AdminListen), ":0") {
		return
	}
	at := "http://" + c.AdminListen.Dial()
	switch status, body, err := look(ctx, at+"/readyz", false); {
	case errors.Is(err, syscall.ECONNREFUSED):
		f.warn("admin", "Start the server; or say where it is (--admin-listen), or that there is none (--offline).", "no server answers at %s", at)
	case err != nil:
		f.fault("admin", "See whether it is a2ad that listens there, and what its log says.", "%s does not answer: %s", at, err)
	case status != http.StatusOK:
		f.fault("admin", "", "the server at %s is not ready: %d %s", at, status, term.Shorten(strings.TrimSpace(body), 200))
	default:
		f.ok("admin", "the server at %s is ready", at)
	}
	if !c.AdminListen.Loopback() {
		f.warn("admin", "Bind it to 127.0.0.1, or to an address that only operators reach.", "A2AD_ADMIN_LISTEN is %s: whoever reaches it reads profiles and health without signing in", c.AdminListen)
	}
}

func isCard(body string) bool {
	var card struct {
		Name string `json:"name"`
	}
	return json.Unmarshal([]byte(body), &card) == nil && card.Name != ""
}

func (c *DoctorCmd) checkPublic(ctx context.Context, f *findings) {
	if c.PublicURL == "" {
		if !c.Listen.Loopback() {
			f.warn("public url", "Set A2AD_PUBLIC_URL to the address under which clients reach the server.", "A2AD_PUBLIC_URL is not set: agent cards name %s, which clients may not reach", c.Listen)
		}
		return
	}
	begin, base := f.sofar(), strings.TrimSuffix(string(c.PublicURL), "/")
	u, err := url.Parse(base)
	if err != nil {
		f.fault("public url", "", "A2AD_PUBLIC_URL: %s", err)
		return
	}
	if u.Scheme != "https" && !loopbackHost(u.Hostname()) {
		f.warn("public url", "Put TLS in front, and write https://.", "%s is not https: API keys and tasks go in the clear", base)
	}
	status, body, err := look(ctx, base+cardPath, !loopbackHost(u.Hostname()))
	const fix = "See that DNS, the proxy in front and its certificate lead from here to the server, with the path that A2AD_PUBLIC_URL has."
	switch {
	case err != nil:
		f.fault("public url", fix, "%s cannot be reached from here: %s", base, err)
	case status != http.StatusOK || !isCard(body):
		f.fault("public url", fix, "%s answers %d and not with an agent card", base+cardPath, status)
	case !strings.Contains(body, fmt.Sprintf("%q", base+"/")) && !strings.Contains(body, fmt.Sprintf("%q", base)):
		f.warn("public url", "Give all servers the same A2AD_PUBLIC_URL.", "the agent card at %s does not name this address: the server has another A2AD_PUBLIC_URL", base)
	}
	f.okUnless(begin, "public url", "%s leads to an agent card", base)
}

func loopbackHost(host string) bool { return config.Listen(net.JoinHostPort(host, "0")).Loopback() }
