package agents

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

// Spec is the executor that does the agent's work: Echo, Script, Exec, HTTP, A2A or Pull.
type Spec interface {
	// Kind is the name of the executor, as in agent files.
	Kind() string
}

// Echo is the built-in agent that repeats its message.
type Echo struct{}

// Script is the built-in agent that follows the script in its message.
type Script struct{}

// Exec runs a command for each run.
type Exec struct {
	Command   []string // program and arguments; no shell is involved
	Input     string   // "run" or "text"
	Output    string   // "events" or "text"
	Dir       string   // working directory
	Env       map[string]string
	MaxOutput int // bytes of stdout of one run; 0: the executor's default
}

// HTTP posts each run to a program.
type HTTP struct {
	Remote
	URL              string
	CancelURL        string        // "": a cancel only closes the request
	FirstByteTimeout time.Duration // until the header of the answer; 0: the executor's default
	IdleTimeout      time.Duration // between two reads of the answer; 0: the executor's default
}

// A2A passes runs to a remote A2A agent.
type A2A struct {
	Remote
	Card         string        // URL of its card
	AllowOrigins []string      // more servers, as https://host:port, that the card may refer to
	Version      string        // "0.3" or "1.0"; "": the newest that its card offers and a2ad supports
	PollInterval time.Duration // if the agent does not stream; 0: the executor's default
	OnLostTask   string        // "retry" or "fail": if the agent lost the task, or it is unknown whether it has it
}

// Pull leaves the work to remote workers, which claim runs.
type Pull struct{}

// Kind is echo.
func (Echo) Kind() string { return "echo" }

// Kind is script.
func (Script) Kind() string { return "script" }

// Kind is exec.
func (Exec) Kind() string { return "exec" }

// Kind is http.
func (HTTP) Kind() string { return "http" }

// Kind is a2a.
func (A2A) Kind() string { return "a2a" }

// Kind is pull.
func (Pull) Kind() string { return "pull" }

// Remote is how to reach a program over a connection.
type Remote struct {
	Headers        map[string]string // values may contain ${NAME}, an environment variable: see Header
	BearerEnv      string            // variable with a bearer token; "": none
	TLS            TLS
	ConnectTimeout time.Duration // name lookup, connection and TLS together; 0: the executor's default
}

// TLS names the key files of a connection. The zero value trusts what the system trusts.
type TLS struct {
	CA         string // PEM file with the only trusted authorities
	Cert, Key  string // PEM files of the client certificate; both or none
	ServerName string // expected in the server's certificate instead of the URL's host
}

// Header returns the headers of every request, with the variables replaced. lookup has the
// signature of os.LookupEnv. A variable that is unset or empty is an error that names it, because a
// request without its credentials would only fail later.
func (r Remote) Header(lookup func(name string) (string, bool)) (http.Header, error) {
	h := make(http.Header, len(r.Headers)+1)
	for name, value := range r.Headers {
		value, err := expand(value, lookup)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		h.Set(name, value)
	}
	if r.BearerEnv != "" {
		token, err := variable(r.BearerEnv, lookup)
		if err != nil {
			return nil, fmt.Errorf("bearer_env: %w", err)
		}
		h.Set("Authorization", "Bearer "+token)
	}
	return h, nil
}

// Variables returns the names of all variables that Header looks up, in no order.
func (r Remote) Variables() []string {
	var names []string
	for _, value := range r.Headers {
		//nolint:errcheck // only the names matter here
		expand(value, func(name string) (string, bool) {
			names = append(names, name)
			return "x", true
		})
	}
	if r.BearerEnv != "" {
		names = append(names, r.BearerEnv)
	}
	return names
}

func variable(name string, lookup func(string) (string, bool)) (string, error) {
	value, ok := lookup(name)
	switch {
	case !ok || value == "":
		return "", fmt.Errorf("the variable %s is not set", name)
	case !headerValue(value):
		return "", fmt.Errorf("the variable %s contains a line break or another character that a header cannot contain",
			name)
	}
	return value, nil
}

// errReference is an error in the text, not in the environment.
var errReference = errors.New("write ${NAME} to refer to a variable, and $$ for a $")

// expand replaces ${NAME} by variables, and $$ by $.
func expand(s string, lookup func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		if rest, ok := strings.CutPrefix(after, "$"); ok {
			out.WriteByte('$')
			s = rest
			continue
		}
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "{"), "}")
		if !strings.HasPrefix(after, "{") || !closed || !envName.MatchString(name) {
			return "", errReference
		}
		value, err := variable(name, lookup)
		if err != nil {
			return "", err
		}
		out.WriteString(value)
		s = rest
	}
}

func headerValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// TLSConfig reads the files. Without files it returns a config that verifies as the system does.
func (r Remote) TLSConfig() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: r.TLS.ServerName}
	if r.TLS.CA != "" {
		pem, err := os.ReadFile(r.TLS.CA)
		if err != nil {
			return nil, fmt.Errorf("tls.ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca: no certificate in %s", r.TLS.CA)
		}
	}
	if r.TLS.Cert != "" {
		cert, err := tls.LoadX509KeyPair(r.TLS.Cert, r.TLS.Key)
		if err != nil {
			return nil, fmt.Errorf("tls.cert and tls.key: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}
