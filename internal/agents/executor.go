package agents

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

func (d *decoder) executor(n node) Spec {
	if n.kind == kindString {
		d.fault(n.line, "executor must be a mapping; write executor: {%s: {}}", n.text)
		return nil
	}
	var specs []Spec
	empty := func(s Spec, what string) func(node) {
		return func(n node) {
			if n.kind != kindNull {
				d.mapping(n, what, nil, nil)
			}
			specs = append(specs, s)
		}
	}
	one := func(read func(node) Spec) func(node) {
		return func(n node) { specs = append(specs, read(n)) }
	}
	before := len(d.faults)
	fields := []field{
		{name: "echo", read: empty(Echo{}, "echo")},
		{name: "script", read: empty(Script{}, "script")},
		{name: "exec", read: one(d.exec)},
		{name: "http", read: one(d.http)},
		{name: "a2a", read: one(d.a2a)},
		{name: "pull", read: empty(Pull{}, "pull")},
	}
	d.mapping(n, "executor", fields, nil)
	if len(specs) == 1 {
		return specs[0]
	}
	if len(d.faults) == before {
		var names []string
		for _, f := range fields {
			names = append(names, f.name)
		}
		d.fault(n.line, "executor must name exactly one of %s", either(names))
	}
	return nil
}

// maxOutput is the largest limit that a file may set for the stdout of a run.
const maxOutput = 1 << 30

func (d *decoder) exec(n node) Spec {
	e := Exec{Input: "run", Output: "events", Dir: filepath.Dir(d.path)}
	lines := d.mapping(n, "exec", []field{
		{name: "command", read: func(n node) { d.command(n, &e.Command) }},
		{name: "input", read: d.word("input", []string{"run", "text"}, &e.Input)},
		{name: "output", read: d.word("output", []string{"events", "text"}, &e.Output)},
		{name: "dir", read: d.file("dir", &e.Dir)},
		{name: "env", read: func(n node) { d.env(n, &e.Env) }},
		{name: "max_output", read: d.size("max_output", maxOutput, &e.MaxOutput)},
	}, nil)
	if n.kind == kindMap && lines["command"] == 0 {
		d.fault(n.line, `exec has no command; add command: ["wc", "-w"]`)
	}
	return e
}

func (d *decoder) command(n node, dst *[]string) {
	if n.kind == kindString {
		words := strings.Fields(n.text)
		for i, w := range words {
			words[i] = strconv.Quote(w)
		}
		d.fault(n.line, "command must be a list, because no shell splits it; write [%s]", strings.Join(words, ", "))
		return
	}
	if n.kind != kindList || len(n.list) == 0 {
		d.fault(n.line, `command must be a list of texts with the program first, like ["wc", "-w"]`)
		return
	}
	for i, e := range n.list {
		switch {
		case e.kind == kindString && strings.ContainsRune(e.text, 0):
			d.fault(e.line, "an argument of command must not contain a zero byte")
		case e.kind == kindString && (i > 0 || e.text != ""):
			*dst = append(*dst, e.text) // an empty argument is an argument too
		default:
			d.text("each of command", new(string))(e)
		}
	}
}

// file reads a path relative to the directory of the agent file.
func (d *decoder) file(what string, dst *string) func(node) {
	return func(n node) {
		var path string
		if d.text(what, &path)(n); path == "" {
			return
		}
		if strings.ContainsRune(path, 0) {
			d.fault(n.line, "%s must not contain a zero byte", what)
			return
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(d.path), path)
		}
		*dst = path
	}
}

func (d *decoder) env(n node, dst *map[string]string) {
	if n.kind != kindMap {
		d.fault(n.line, "env must be a mapping of names to texts, not %s", n.kind)
		return
	}
	env := map[string]string{}
	for _, m := range n.members {
		_, twice := env[m.key]
		switch {
		case m.key == "" || strings.ContainsAny(m.key, "=\x00"):
			d.fault(m.line, "env: %q cannot be the name of a variable", m.key)
		case twice:
			d.fault(m.line, "env: %s is there already; keep one", m.key)
		case m.value.kind == kindList || m.value.kind == kindMap:
			d.fault(m.line, "env: %s must be text, not %s", m.key, m.value.kind)
		case strings.ContainsRune(m.value.text, 0):
			d.fault(m.line, "env: %s must not contain a zero byte", m.key)
		default:
			env[m.key] = m.value.text
		}
	}
	*dst = env
}

func (d *decoder) http(n node) Spec {
	var h HTTP
	fields := append([]field{
		{name: "url", read: d.url("url", &h.URL)},
		{name: "cancel_url", read: d.url("cancel_url", &h.CancelURL)},
		{name: "first_byte_timeout", read: d.duration("first_byte_timeout", &h.FirstByteTimeout)},
		{name: "idle_timeout", read: d.duration("idle_timeout", &h.IdleTimeout)},
	}, d.remote(&h.Remote)...)
	lines := d.mapping(n, "http", fields, nil)
	if n.kind == kindMap && lines["url"] == 0 {
		d.fault(n.line, `http has no url; add url: "http://127.0.0.1:9000/run"`)
	}
	d.target("url", h.URL, &h.Remote, lines)
	d.target("cancel_url", h.CancelURL, &h.Remote, lines)
	return h
}

func (d *decoder) a2a(n node) Spec {
	a := A2A{OnLostTask: "retry"}
	fields := append([]field{
		{name: "card", read: d.url("card", &a.Card)},
		{name: "allow_origins", read: d.origins("allow_origins", &a.AllowOrigins)},
		{name: "version", read: d.word("version", []string{"0.3", "1.0"}, &a.Version)},
		{name: "poll_interval", read: d.duration("poll_interval", &a.PollInterval)},
		{name: "on_lost_task", read: d.word("on_lost_task", []string{"retry", "fail"}, &a.OnLostTask)},
	}, d.remote(&a.Remote)...)
	lines := d.mapping(n, "a2a", fields, nil)
	if n.kind == kindMap && lines["card"] == 0 {
		d.fault(n.line, `a2a has no card; add card: "http://127.0.0.1:9100/.well-known/agent-card.json"`)
	}
	d.target("card", a.Card, &a.Remote, lines)
	return a
}

// origins reads a list of servers: scheme, host and port.
func (d *decoder) origins(what string, dst *[]string) func(node) {
	return func(n node) {
		d.texts(what, dst)(n)
		for _, o := range *dst {
			u, err := url.Parse(o)
			if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil ||
				u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
				d.fault(n.line,
					"%s: %q is not an origin; write one like https://agents.example.org or http://127.0.0.1:9100", what,
					o)
			}
		}
	}
}

// remote returns the keys that say how to reach a program over a connection.
func (d *decoder) remote(r *Remote) []field {
	return []field{
		{name: "headers", read: func(n node) { d.headers(n, &r.Headers) }},
		{name: "bearer_env", read: d.variable("bearer_env", &r.BearerEnv)},
		{name: "tls", read: func(n node) { d.tls(n, &r.TLS) }},
		{name: "connect_timeout", read: d.duration("connect_timeout", &r.ConnectTimeout)},
	}
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (d *decoder) variable(what string, dst *string) func(node) {
	return func(n node) {
		if d.text(what, dst)(n); *dst == "" {
			return
		}
		if !envName.MatchString(*dst) {
			d.fault(n.line,
				"%s names the variable that holds the token, like MY_AGENT_TOKEN; it is not the token itself", what)
			*dst = ""
		}
	}
}

// ownHeaders are headers that the executors set themselves.
var ownHeaders = []string{"Host", "Content-Length", "Content-Type", "Accept", "Connection", "Transfer-Encoding", "Te",
	"Trailer", "Upgrade", "Traceparent", "A2a-Version"}

func (d *decoder) headers(n node, dst *map[string]string) {
	if n.kind != kindMap {
		d.fault(n.line, "headers must be a mapping of names to texts, not %s", n.kind)
		return
	}
	headers := map[string]string{}
	for _, m := range n.members {
		name := http.CanonicalHeaderKey(m.key)
		_, twice := headers[name]
		switch {
		case !httpguts.ValidHeaderFieldName(m.key):
			d.fault(m.line, "headers: %q cannot be the name of a header", m.key)
		case slices.Contains(ownHeaders, name):
			d.fault(m.line, "headers: %s is set by the server; leave the line out", name)
		case twice:
			d.fault(m.line, "headers: %s is there already; keep one", name)
		case m.value.kind == kindList || m.value.kind == kindMap || m.value.kind == kindNull:
			d.fault(m.line, "headers: %s must be text, not %s", name, m.value.kind)
		case !headerValue(m.value.text):
			d.fault(m.line, "headers: %s must not contain a line break or another control character", name)
		default:
			headers[name] = m.value.text
			d.reference(m, name)
		}
	}
	*dst = headers
}

// reference checks the variables in a header's value.
func (d *decoder) reference(m member, name string) {
	refers := false
	_, err := expand(m.value.text, func(string) (string, bool) {
		refers = true
		return "x", true
	})
	if errors.Is(err, errReference) {
		d.fault(m.line, "headers: %s: %s", name, err)
	}
	if name == "Authorization" && !refers && err == nil {
		d.warn(m.line,
			"headers: Authorization is in the file unencrypted; write ${NAME} and set the variable, or use bearer_env")
	}
}

func (d *decoder) tls(n node, t *TLS) {
	lines := d.mapping(n, "tls", []field{
		{name: "ca", read: d.file("tls.ca", &t.CA)},
		{name: "cert", read: d.file("tls.cert", &t.Cert)},
		{name: "key", read: d.file("tls.key", &t.Key)},
		{name: "server_name", read: d.text("tls.server_name", &t.ServerName)},
	}, map[string]string{
		"insecure_skip_verify": "tls has no insecure_skip_verify; " +
			"name the certificate of the server's authority, or its own, under ca",
	})
	if n.kind == kindMap && (lines["cert"] == 0) != (lines["key"] == 0) {
		d.fault(n.line, "tls: cert and key belong together; name both or none")
	}
}

// target checks whether an address is safe for what is sent to it.
func (d *decoder) target(key, address string, r *Remote, lines map[string]int) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return // reported already, or missing
	}
	if u.User != nil {
		d.fault(lines[key], "%s must not contain a user or password; use headers or bearer_env", key)
	}
	if u.Fragment != "" {
		d.fault(lines[key], "%s must not contain a fragment; leave out #%s", key, u.Fragment)
	}
	if _, both := r.Headers["Authorization"]; both && r.BearerEnv != "" && key != "cancel_url" {
		d.fault(lines["bearer_env"], "bearer_env sets the header Authorization, which headers sets too; keep one")
	}
	if u.Scheme == "https" {
		return
	}
	if r.TLS != (TLS{}) {
		d.fault(lines[key], "%s is http, and tls is for https; change one of the two", key)
	}
	if len(r.Headers) > 0 || r.BearerEnv != "" {
		if ip, err := netip.ParseAddr(u.Hostname()); u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
			d.warn(lines[key], "%s is http: headers and tokens cross the network unencrypted; use https", key)
		}
	}
}
