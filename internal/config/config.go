// Package config reads the settings of a2ad from flags, A2AD_* variables, files and defaults, and
// finds every fault in them at once.
//
// It knows the form of every setting and nothing of the parts that use them. Commands read the environment of the
// process and pass it in; a linter keeps other packages from reading it. Secrets are masked wherever a value is shown.
package config

import (
	"crypto/rand"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Values of Config.Auth and Config.Sharing.
const (
	AuthRequired  = "required"
	AuthNone      = "none"
	SharingOwner  = "owner"
	SharingTenant = "tenant"
)

// Groups are the titles of settings in help texts and tables.
var Groups = []Group{
	{Key: "database", Title: "Database:"},
	{Key: "listeners", Title: "Listeners:"},
	{Key: "access", Title: "Access:"},
	{Key: "work", Title: "Agents and work:"},
	{Key: "streams", Title: "Streams and waiting:"},
	{Key: "webhooks", Title: "Webhooks:"},
	{Key: "protocol", Title: "Protocol:"},
	{Key: "limits", Title: "Limits:"},
	{Key: "logs", Title: "Logs:"},
	{Key: "checks", Title: "Checks:"},
	{Key: "connection", Title: "Connection:"},
}

// Group is the title of the settings whose tag group is Key.
type Group struct{ Key, Title string }

// Config has every setting of a server. It is filled once and does not change.
//
// Times and sizes that only tests and large installations change are hidden in the help of the
// commands; `a2ad config -v` shows all settings.
type Config struct {
	Database  `group:"database"`
	Pool      `group:"database"`
	Listeners `group:"listeners"`
	Access    `group:"access"`
	OIDC      `group:"access"`
	TLS       `group:"access"`
	Work      `group:"work"`
	Streams   `group:"streams"`
	Webhooks  `group:"webhooks"`
	Protocol  `group:"protocol"`
	Limits    `group:"limits"`
	Logs      `group:"logs"`
	Checks    `group:"checks"`
}

// Check finds what is wrong with a configuration as a whole.
func (c *Config) Check() []Fault {
	var f faults
	if c.RetryBackoffMax < c.RetryBackoffBase {
		f.add("A2AD_RETRY_BACKOFF_MAX", "is shorter than A2AD_RETRY_BACKOFF_BASE, %s",
			formatDuration(c.RetryBackoffBase))
	}
	if c.Replica != "" && !replicaName.MatchString(c.Replica) {
		f.add("A2AD_REPLICA", "write up to 40 letters, digits, dots, dashes or underscores")
	}
	return slices.Concat(c.checkAnonymous(), c.Listeners.check(), f, c.OIDC.check(), c.checkConsole(c.PublicURL),
		c.TLS.check(), c.Database.Check())
}

// checkAnonymous allows access without authentication only on this machine.
func (c *Config) checkAnonymous() (f faults) {
	if c.Auth != AuthNone {
		return nil
	}
	const text = "anonymous access is for loopback listeners only, and %s is %s: use required, or listen on 127.0.0.1"
	if c.Listen != "" && !c.Listen.Loopback() {
		f.add("A2AD_AUTH", text, "A2AD_LISTEN", c.Listen)
	}
	if own := c.GRPCListen.Own(); own != "" && !own.Loopback() {
		f.add("A2AD_AUTH", text, "A2AD_GRPC_LISTEN", own)
	}
	return f
}

// CheckServe is Check, and checks what `a2ad serve` also needs.
func (c *Config) CheckServe() []Fault {
	var f faults
	if !c.DatabaseURL.IsSet() {
		f.add("A2AD_DATABASE_URL", "name the PostgreSQL to connect to, for example %s", exampleDSN)
	}
	if c.Agents == "" {
		f.add("A2AD_AGENTS", "name an agent file or a directory of agent files, for example /etc/a2ad/agents")
	}
	if c.CardSigning && c.Keys.Empty() {
		f.add("A2AD_CARD_SIGNING", "set A2AD_KEYS too: they encrypt the stored signing key")
	}
	return append(f, c.Check()...)
}

// replicaName leaves room for "a2ad-" and the role in application_name, which holds 63 bytes.
var replicaName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,40}$`)

// ReplicaName returns the name that was set, or else one that no other process has.
func (c *Config) ReplicaName() string {
	if c.Replica != "" {
		return c.Replica
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "a2ad"
	}
	host = replicaUnsafe.ReplaceAllString(host, "-")
	if len(host) > 24 {
		host = host[:24]
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:6]))
}

var replicaUnsafe = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// Checks says what the program checks before it starts.
type Checks struct {
	Strict bool `type:"setting" name:"strict" def:"off"`
}

// RefusesUnknown reports whether a variable that is not a setting is a fault.
func (c *Checks) RefusesUnknown() bool { return c.Strict }
