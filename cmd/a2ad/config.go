package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/seal"
)

// Values of Config.Auth and Config.Sharing.
const (
	AuthRequired  = "required"
	AuthNone      = "none"
	SharingOwner  = "owner"
	SharingTenant = "tenant"
)

var settingGroups = []kong.Group{
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

// Config is everything that can be set for a server: a value, filled once and passed
// down. Times and sizes that only tests and large installations change are hidden in
// the help of the commands; `a2ad config -v` shows them all.
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

// Database says where the tasks are kept.
type Database struct {
	DatabaseURL Secret `type:"setting" name:"database-url" secret:"yes" help:"PostgreSQL to work on; where serve does not ask for one, that of dev under --data-dir."`
	DataDir     string `type:"setting" name:"data-dir" def:".a2ad" placeholder:"DIR" help:"Where dev keeps its PostgreSQL."`
	PGBinDir    string `type:"setting" name:"pg-bindir" auto:"searched" placeholder:"DIR" help:"Directory of the PostgreSQL programs that dev starts."`
}

// Pool says how the server uses the database.
type Pool struct {
	DBPool           int           `type:"setting" name:"db-pool" def:"16" min:"4" help:"Connections for requests and work. Four more listen, renew leases and watch the database."`
	PoolTimeout      time.Duration `type:"setting" name:"pool-timeout" def:"5s" min:"10ms" hidden:"" help:"Longest wait for a free connection."`
	ConnectTimeout   time.Duration `type:"setting" name:"connect-timeout" def:"2s" min:"10ms" hidden:"" help:"Longest wait for a new connection to PostgreSQL. While none can be made, calls are refused after this time, and at once when that has lasted longer."`
	TCPTimeout       time.Duration `type:"setting" name:"tcp-timeout" def:"5s" min:"1s" hidden:"" help:"Longest wait until PostgreSQL's machine acknowledges what was sent (TCP_USER_TIMEOUT, on Linux); keepalives find a silent one in about this time."`
	StatementTimeout time.Duration `type:"setting" name:"statement-timeout" def:"8s" min:"10ms" hidden:"" help:"Longest run of one statement. A connection that has not answered a second later is given up."`
	LockTimeout      time.Duration `type:"setting" name:"lock-timeout" def:"5s" min:"10ms" hidden:"" help:"Longest wait for a row lock."`
	IdleTxTimeout    time.Duration `type:"setting" name:"idle-tx-timeout" def:"5s" min:"10ms" hidden:"" help:"Longest pause inside a transaction."`
	ListenerPing     time.Duration `type:"setting" name:"listener-ping" def:"5s" min:"10ms" hidden:"" help:"How often the listening connection proves that it is alive."`
}

// Admin is the listener for operators.
type Admin struct {
	AdminListen Listen `type:"setting" name:"admin-listen" def:"127.0.0.1:9090" help:"Address for operators: health and profiles; or off."`
}

// Listeners says where the server answers.
type Listeners struct {
	Listen Listen `type:"setting" name:"listen" def:"127.0.0.1:8080" help:"Address of the API."`
	Admin
	GRPCListen        GRPCListen    `type:"setting" name:"grpc-listen" def:"off" help:"Address of the API over gRPC; same, which is the port of the API; or off."`
	PublicURL         BaseURL       `type:"setting" name:"public-url" auto:"from the listener" help:"What agent cards say about where the server is."`
	GRPCPublicAddress Listen        `type:"setting" name:"grpc-public-address" auto:"from the listener" hidden:"" placeholder:"HOST:PORT" help:"Where agent cards say that gRPC is; else at the host of A2AD_PUBLIC_URL and the port of the listener."`
	GRPCCard          string        `type:"setting" name:"grpc-card" def:"address" oneof:"address,url,off" hidden:"" placeholder:"FORM" help:"How agent cards name gRPC: as host:port, which the official clients take; as a URL, which Google ADK demands; or off, not at all."`
	ReadHeaderTimeout time.Duration `type:"setting" name:"read-header-timeout" def:"5s" min:"1ms" hidden:"" help:"Longest wait for the header of a request."`
	ReadTimeout       time.Duration `type:"setting" name:"read-timeout" def:"15s" min:"1ms" hidden:"" help:"Longest wait for a whole request."`
	WriteTimeout      time.Duration `type:"setting" name:"write-timeout" def:"30s" min:"1ms" hidden:"" help:"Longest time to send an answer that is no stream."`
	HTTPIdleTimeout   time.Duration `type:"setting" name:"http-idle-timeout" def:"120s" min:"1ms" hidden:"" help:"How long an idle connection is kept."`
	ReadyTimeout      time.Duration `type:"setting" name:"ready-timeout" def:"1s" min:"1ms" hidden:"" help:"Longest wait for the database when asked whether the server is ready."`
	DrainDelay        time.Duration `type:"setting" name:"drain-delay" def:"0s" min:"0s" hidden:"" help:"How long a server that is told to stop only says that it is not ready, so that proxies find other replicas before it stops listening."`
	DrainTimeout      time.Duration `type:"setting" name:"drain-timeout" def:"20s" min:"0s" help:"How long runs may go on after the signal to stop."`
}

// Access says who may do what.
type Access struct {
	Auth        string        `type:"setting" name:"auth" def:"required" dev:"none" oneof:"required,none" placeholder:"WHICH" help:"Whether callers must sign in: required, or none on loopback listeners."`
	AuthRecheck time.Duration `type:"setting" name:"auth-recheck" def:"30s" min:"1s" hidden:"" help:"How long a stream, a blocking send or a claim may go on after its credential was revoked or has expired."`
	CORSOrigins Origins       `type:"setting" name:"cors-origins" def:"none" hidden:"" placeholder:"ORIGINS" help:"Origins of pages that may use the server from a browser, such as https://app.example.org."`
	Sharing     string        `type:"setting" name:"sharing" def:"owner" oneof:"owner,tenant" hidden:"" placeholder:"WHO" help:"Who sees a task: its owner, or every owner of the tenant."`
	Keys        seal.Ring     `type:"setting" name:"keys" kong:"-" secret:"yes" help:"Keys for secrets at rest, id:base64-of-32-bytes, with commas between them. The first one seals."`
}

// TLS says which certificates the server has, and which of clients sign in.
type TLS struct {
	TLSCert        string   `type:"setting" name:"tls-cert" placeholder:"FILE" help:"Certificate of the API and of gRPC, with its chain, in PEM. Read again when it changes."`
	TLSKey         string   `type:"setting" name:"tls-key" placeholder:"FILE" help:"Its private key."`
	TLSClientCA    string   `type:"setting" name:"tls-client-ca" placeholder:"FILE" help:"Authorities whose client certificates sign callers in."`
	MTLSTenantFrom string   `type:"setting" name:"mtls-tenant-from" def:"fixed" oneof:"fixed,organization,uri-host" hidden:"" placeholder:"WHAT" help:"What of a client certificate names the tenant: nothing, its O, or the host of its first URI."`
	MTLSTenant     string   `type:"setting" name:"mtls-tenant" def:"default" hidden:"" placeholder:"TEXT" help:"Tenant of client certificates where nothing of them names it."`
	MTLSScopes     Scopes   `type:"setting" name:"mtls-scopes" def:"tasks:read,tasks:write,push:write" hidden:"" placeholder:"SCOPES" help:"What client certificates permit."`
	MTLSProxies    Prefixes `type:"setting" name:"mtls-proxies" def:"none" hidden:"" help:"Address ranges of proxies that end TLS and say in X-Forwarded-Client-Cert which certificate their client has shown."`
}

func (t *TLS) check() []fault {
	var faults []fault
	bad := func(name, text string) { faults = append(faults, fault{Name: name, Text: text}) }
	switch {
	case (t.TLSCert == "") != (t.TLSKey == ""):
		bad(map[bool]string{true: "A2AD_TLS_CERT", false: "A2AD_TLS_KEY"}[t.TLSCert == ""], "a certificate needs its key, and a key its certificate")
	case t.TLSClientCA != "" && t.TLSCert == "":
		bad("A2AD_TLS_CLIENT_CA", "set A2AD_TLS_CERT and A2AD_TLS_KEY too: clients show certificates over TLS alone")
	}
	for _, p := range t.MTLSProxies {
		if p.Bits() == 0 {
			bad("A2AD_MTLS_PROXIES", fmt.Sprintf("%s is everybody, and anybody could claim any certificate: name the addresses of your proxies", p))
		}
	}
	return faults
}

// OIDC says which tokens of an identity provider are taken, and what they mean.
type OIDC struct {
	OIDCIssuer      Issuer `type:"setting" name:"oidc-issuer" help:"Identity provider whose tokens sign callers in, as tokens name it in iss."`
	OIDCAudience    string `type:"setting" name:"oidc-audience" placeholder:"TEXT" help:"What tokens for this server have in aud."`
	OIDCJWKSURL     Issuer `type:"setting" name:"oidc-jwks-url" auto:"discovered" hidden:"" help:"Where the keys of the issuer are."`
	OIDCTenantClaim string `type:"setting" name:"oidc-tenant-claim" placeholder:"CLAIM" help:"Claim that names the tenant; without it all tokens are of A2AD_OIDC_TENANT."`
	OIDCTenant      string `type:"setting" name:"oidc-tenant" def:"default" hidden:"" placeholder:"TEXT" help:"Tenant of all tokens where no claim names it."`
	OIDCOwnerClaim  Words  `type:"setting" name:"oidc-owner-claim" def:"sub,client_id" hidden:"" placeholder:"CLAIMS" help:"Claims of which the first that a token has names the owner."`
	OIDCScopeClaim  Words  `type:"setting" name:"oidc-scope-claim" def:"scope,scp" hidden:"" placeholder:"CLAIMS" help:"Claims that name scopes, as tasks:read, in one text or a list."`
	OIDCOAuth2      OAuth2 `type:"setting" name:"oidc-oauth2" hidden:"" placeholder:"JSON" help:"How clients get tokens, for cards: an object with one of the OAuth flows under flows, and oauth2MetadataUrl."`
	OIDCScopes      Scopes `type:"setting" name:"oidc-scopes" placeholder:"SCOPES" help:"Scopes that every token has besides."`
}

func (o *OIDC) check() []fault {
	var faults []fault
	bad := func(name, text string) { faults = append(faults, fault{Name: name, Text: text}) }
	switch {
	case o.OIDCIssuer == "" && o.OIDCAudience != "":
		bad("A2AD_OIDC_AUDIENCE", "set A2AD_OIDC_ISSUER too: it says whose tokens these are")
	case o.OIDCIssuer == "" && o.OIDCJWKSURL != "":
		bad("A2AD_OIDC_JWKS_URL", "set A2AD_OIDC_ISSUER too: it says whose keys these are")
	case o.OIDCIssuer == "" && o.OIDCOAuth2.OAuth2 != nil:
		bad("A2AD_OIDC_OAUTH2", "set A2AD_OIDC_ISSUER too: it says whose tokens clients get this way")
	case o.OIDCIssuer != "" && o.OIDCAudience == "":
		bad("A2AD_OIDC_AUDIENCE", "say what tokens for this server have in aud, for example https://agents.example.org: without it a token for any other service would do")
	}
	return faults
}

// Work says which agents there are and how their runs are held.
type Work struct {
	Agents           string        `type:"setting" name:"agents" placeholder:"PATH" help:"Agent file, or directory of agent files."`
	DefaultAgent     string        `type:"setting" name:"default-agent" auto:"the file with default: true, else the only one, else echo" placeholder:"NAME" help:"Agent that answers at /."`
	Workers          int           `type:"setting" name:"workers" def:"16" min:"0" help:"Agents at work at once; 0 only serves."`
	Replica          string        `type:"setting" name:"replica" auto:"host name, pid and a random word" placeholder:"NAME" help:"Name of this replica in leases and connections."`
	LeaseTTL         time.Duration `type:"setting" name:"lease-ttl" def:"30s" min:"300ms" help:"How long a run, or a webhook whose request is under way, is held without a sign of life; renewed at a third of it."`
	PollInterval     time.Duration `type:"setting" name:"poll-interval" def:"1s" min:"1ms" hidden:"" help:"How often work and events are looked for when no wake arrives."`
	WakeInterval     time.Duration `type:"setting" name:"wake-interval" def:"5ms" min:"0s" hidden:"" help:"How long wakes to other replicas gather."`
	RunDeadline      time.Duration `type:"setting" name:"run-deadline" def:"1h" min:"1ms" help:"Longest turn of an agent, over all its attempts."`
	IdleTimeout      time.Duration `type:"setting" name:"idle-timeout" def:"5m" min:"1ms" help:"Longest silence of a running agent."`
	MaxAttempts      int           `type:"setting" name:"max-attempts" def:"5" min:"1" help:"Attempts at one turn."`
	RetryBackoffBase time.Duration `type:"setting" name:"retry-backoff-base" def:"1s" min:"0s" hidden:"" help:"Wait before the second attempt; doubles from there, with jitter."`
	RetryBackoffMax  time.Duration `type:"setting" name:"retry-backoff-max" def:"1m" min:"0s" hidden:"" help:"Longest wait between two attempts."`
	RescueInterval   time.Duration `type:"setting" name:"rescue-interval" def:"1s" min:"1ms" hidden:"" help:"How often runs whose lease has ended are looked for."`
	SweepInterval    time.Duration `type:"setting" name:"sweep-interval" def:"10m" min:"1ms" hidden:"" help:"How often rows that are old enough to be removed are looked for."`
	Retention        Retention     `type:"setting" name:"retention" def:"never" hidden:"" help:"Time after its end at which a task is deleted, or never."`
	LogRetention     Retention     `type:"setting" name:"log-retention" def:"never" hidden:"" help:"Time after its end at which the events of a task are removed, or never."`
	AttemptRetention Retention     `type:"setting" name:"attempt-retention" def:"9600h" hidden:"" help:"Time after the end of a task at which the records of its attempts are removed, or never."`
	AuditRetention   Retention     `type:"setting" name:"audit-retention" def:"9600h" hidden:"" help:"Age at which entries of the audit log are removed, after 30 days at the earliest, or never."`
	SigninRetention  Retention     `type:"setting" name:"signin-retention" def:"720h" hidden:"" help:"Age at which failed sign-ins are removed from the audit log, after a day at the earliest, or never."`
	RetireInterval   time.Duration `type:"setting" name:"retire-interval" def:"1m" min:"1ms" hidden:"" help:"How often tasks that are old enough to be deleted are looked for."`
}

// Streams says how long callers wait and how streams are kept alive.
type Streams struct {
	BlockingMaxWait time.Duration `type:"setting" name:"blocking-max-wait" def:"45s" min:"0s" help:"Longest wait of a blocking send; then it answers with the task as it is."`
	SSEPing         time.Duration `type:"setting" name:"sse-ping" def:"15s" min:"1ms" help:"Pause after which a quiet stream sends a comment."`
	SSEWriteTimeout time.Duration `type:"setting" name:"sse-write-timeout" def:"10s" min:"1ms" hidden:"" help:"Longest write to a stream; a slower reader is cut off and resumes."`
	SSERetry        time.Duration `type:"setting" name:"sse-retry" def:"500ms" min:"1ms" hidden:"" help:"What a stream that ends early tells its client to wait."`
	MaxStreams      int           `type:"setting" name:"max-streams" def:"10000" min:"1" hidden:"" help:"Streams of one replica."`
	MaxOwnerStreams int           `type:"setting" name:"max-streams-per-owner" def:"100" min:"1" hidden:"" help:"Streams of one owner in one replica."`
}

// Webhooks says how notifications are delivered.
type Webhooks struct {
	PushRetry          Durations      `type:"setting" name:"push-retry" def:"0,5s,30s,2m,10m,30m,1h,3h,6h,12h,24h" hidden:"" help:"Waits before try 1, 2 and so on; n values are n tries."`
	PushThrottleWait   time.Duration  `type:"setting" name:"push-throttle-wait" def:"60s" min:"0s" hidden:"" help:"Least wait after a timeout, 429, 502, 503 or 504."`
	PushBreaker        Breaker        `type:"setting" name:"push-breaker" def:"5,30s,15m" hidden:"" help:"Failures after which a destination rests, for how long at first, and at most."`
	PushDisableAfter   time.Duration  `type:"setting" name:"push-disable-after" def:"120h" min:"1ms" hidden:"" help:"How long a destination may fail before it is disabled."`
	PushTimeout        time.Duration  `type:"setting" name:"push-timeout" def:"15s" min:"1ms" hidden:"" help:"Longest try."`
	PushAllowHTTP      bool           `type:"setting" name:"push-allow-http" def:"off" dev:"on" hidden:"" help:"Deliver to http URLs too."`
	PushAllowCIDRs     Prefixes       `type:"setting" name:"push-allow-cidrs" def:"none" dev:"127.0.0.0/8,::1/128" help:"Private address ranges that the server may call."`
	PushProxy          BaseURL        `type:"setting" name:"push-proxy" hidden:"" help:"Proxy for webhooks; it must refuse private addresses itself."`
	PushSigningSecrets SigningSecrets `type:"setting" name:"push-signing-secrets" kong:"-" secret:"yes" help:"whsec_ secrets for v1 signatures, with commas between them."`
	PushConcurrency    int            `type:"setting" name:"push-concurrency" def:"256" min:"1" hidden:"" help:"Deliveries at once of this replica."`
	PushPerDestination int            `type:"setting" name:"push-per-destination" def:"8" min:"1" hidden:"" help:"Deliveries at once to one destination, of all replicas."`
	PushPoll           time.Duration  `type:"setting" name:"push-poll" def:"1s" min:"1ms" hidden:"" help:"How often due webhooks are looked for when no wake arrives; at least each A2AD_POLL_INTERVAL."`
	PushRetention      Retention      `type:"setting" name:"push-retention" def:"2160h" hidden:"" help:"Age at which failed tries, answers and deleted webhooks are removed, or never."`
	PushMaxBody        Bytes          `type:"setting" name:"push-max-body" def:"256KiB" min:"1KiB" hidden:"" help:"Size of a notification; a larger task goes without its history, then its artifacts, then its status message."`
	MaxPushConfigs     int            `type:"setting" name:"max-push-configs" def:"10" min:"0" hidden:"" help:"Webhooks of one task."`
	MaxPushURL         Bytes          `type:"setting" name:"max-push-url" def:"2KiB" min:"1" hidden:"" help:"Length of a webhook's URL."`
	MaxPushSecret      Bytes          `type:"setting" name:"max-push-secret" def:"4KiB" min:"1" hidden:"" help:"Length of a webhook's token or credentials."`
	MaxPushAnswer      Bytes          `type:"setting" name:"max-push-answer" def:"16KiB" min:"0" hidden:"" help:"What is read of a webhook's answer."`
	KeepPushAnswer     Bytes          `type:"setting" name:"keep-push-answer" def:"4KiB" min:"0" hidden:"" help:"What is kept of a webhook's answer."`
}

// Protocol holds the switches where clients and test kits differ.
type Protocol struct {
	Lenient03        bool   `type:"setting" name:"lenient-03" def:"on" hidden:"" help:"Take the dialects of A2A 0.3 that mean nothing else."`
	LenientVersion   bool   `type:"setting" name:"lenient-version" def:"off" hidden:"" help:"Serve 1.0 methods without an A2A-Version header."`
	CardLegacyFields bool   `type:"setting" name:"card-legacy-fields" def:"on" hidden:"" help:"Put the 0.3 fields into the 1.0 card too."`
	CardSigning      bool   `type:"setting" name:"card-signing" def:"off" hidden:"" help:"Sign cards of 1.0 with a key of the server, which /.well-known/jwks.json has."`
	CardWorkshop     bool   `type:"setting" name:"card-workshop-fields" def:"off" hidden:"" help:"Put what workshop material asks for into the 0.3 card: stateManagement, authentication, schemas of skills."`
	ErrorProfile     string `type:"setting" name:"error-profile" def:"1.0.1" oneof:"1.0.1,1.0.0" hidden:"" placeholder:"VERSION" help:"Version of A2A whose table says which status an error of 1.0 has, over HTTP+JSON and gRPC."`
}

// Limits bound what clients and agents may store.
type Limits struct {
	MaxBody      Bytes `type:"setting" name:"max-body" def:"4MiB" min:"1KiB" help:"Size of a request."`
	MaxHeader    Bytes `type:"setting" name:"max-header" def:"32KiB" min:"1KiB" hidden:"" help:"Size of a request's header."`
	MaxJSONDepth int   `type:"setting" name:"max-json-depth" def:"64" min:"8" hidden:"" help:"Depth of JSON."`
	MaxParts     int   `type:"setting" name:"max-parts" def:"100" min:"1" hidden:"" help:"Parts of one message."`
	MaxPart      Bytes `type:"setting" name:"max-part" def:"1MiB" min:"1" hidden:"" help:"Size of one part."`
	MaxMessage   Bytes `type:"setting" name:"max-message" def:"4MiB" min:"1" hidden:"" help:"Size of one message: its parts and metadata."`
	MaxHistory   int   `type:"setting" name:"max-history" def:"10000" min:"1" hidden:"" help:"Messages of one task."`
	MaxArtifacts int   `type:"setting" name:"max-artifacts" def:"1000" min:"1" hidden:"" help:"Artifacts of one task."`
	MaxChunks    int   `type:"setting" name:"max-chunks" def:"100000" min:"1" hidden:"" help:"Artifact chunks of one task."`
	MaxTask      Bytes `type:"setting" name:"max-task" def:"64MiB" min:"1KiB" hidden:"" help:"Size of one task."`
	MaxID        Bytes `type:"setting" name:"max-id" def:"256" min:"36" hidden:"" help:"Length of the ids that clients choose."`
	MaxCursor    Bytes `type:"setting" name:"max-cursor" def:"1KiB" min:"64" hidden:"" help:"Length of a page token."`
	MaxClaims    int   `type:"setting" name:"max-claims" def:"1000" min:"1" hidden:"" help:"Claims of workers that pull, waiting at once in one replica."`
	MaxInFlight  int   `type:"setting" name:"max-tasks-in-flight" def:"10000" min:"0" hidden:"" help:"Tasks of one owner that wait for an agent or are with one; 0: any number."`
	MemoryBudget Bytes `type:"setting" name:"memory-budget" auto:"half of what the cgroup or GOMEMLIMIT allows, else a quarter of the machine" min:"16MiB" help:"Memory for requests in arrival and answers, of one replica. When it is used up, further ones wait for a moment and are then refused."`
	MaxPending   int   `type:"setting" name:"max-pending" def:"2000" min:"1" hidden:"" help:"Reads, and as many writes, of one replica that may be under way in the database or wait for it."`
	Rates
}

// Rates bound how often one owner may ask one replica.
type Rates struct {
	RateReads      Rate     `type:"setting" name:"rate-reads" def:"5000,10000" dev:"off" hidden:"" help:"Reads of one owner: how many a second, and how many at once; or off."`
	RateSends      Rate     `type:"setting" name:"rate-sends" def:"2000,4000" dev:"off" hidden:"" help:"Messages and cancels of one owner; or off."`
	RateStreams    Rate     `type:"setting" name:"rate-streams" def:"500,1000" dev:"off" hidden:"" help:"Streams that one owner opens; or off."`
	RatePushWrites Rate     `type:"setting" name:"rate-push-writes" def:"500,1000" dev:"off" hidden:"" help:"Webhooks that one owner sets or deletes; or off."`
	RateSignIns    Rate     `type:"setting" name:"rate-sign-ins" def:"1,30" dev:"off" hidden:"" help:"Bad credentials from one address; or off."`
	TrustedProxies Prefixes `type:"setting" name:"trusted-proxies" def:"none" help:"Address ranges of proxies whose X-Forwarded-For says where a request is from."`
}

// Logs says what is written to stderr.
type Logs struct {
	LogLevel  slog.Level `type:"setting" name:"log-level" def:"info" placeholder:"LEVEL" help:"debug, info, warn or error."`
	LogFormat string     `type:"setting" name:"log-format" def:"json" dev:"text" oneof:"json,text" placeholder:"FORMAT" help:"json or text."`
}

// Client says which server the client speaks to.
type Client struct {
	URL    BaseURL `type:"setting" name:"url" def:"http://127.0.0.1:8080" help:"Server to speak to."`
	APIKey Secret  `type:"setting" name:"api-key" kong:"-" secret:"yes" help:"API key to sign in with."`
}

// ClientGroup is Client under its own title in the help.
type ClientGroup struct {
	Client `group:"connection"`
}

// check finds what is wrong with a configuration as a whole.
func (c *Config) check() []fault {
	var faults []fault
	bad := func(name, text string) { faults = append(faults, fault{Name: name, Text: text}) }
	if c.Auth == AuthNone {
		for _, l := range []struct {
			name string
			addr Listen
		}{{"A2AD_LISTEN", c.Listen}, {"A2AD_GRPC_LISTEN", c.GRPCListen.Own()}} {
			if l.addr != "" && !l.addr.Loopback() {
				bad("A2AD_AUTH", fmt.Sprintf("anonymous access is for loopback listeners only, and %s is %s: use required, or listen on 127.0.0.1", l.name, l.addr))
			}
		}
	}
	if c.Listen == "" {
		bad("A2AD_LISTEN", "the API cannot be off")
	}
	if c.Listen == c.AdminListen && !strings.HasSuffix(string(c.Listen), ":0") {
		bad("A2AD_ADMIN_LISTEN", "is the address of the API too: choose another port")
	}
	if own := c.GRPCListen.Own(); own != "" && !strings.HasSuffix(string(own), ":0") {
		switch own {
		case c.Listen:
			bad("A2AD_GRPC_LISTEN", "is the address of the API too: write same to serve gRPC on that port, or choose another one")
		case c.AdminListen:
			bad("A2AD_GRPC_LISTEN", "is the address of another listener too: choose another port")
		}
	}
	if c.RetryBackoffMax < c.RetryBackoffBase {
		bad("A2AD_RETRY_BACKOFF_MAX", fmt.Sprintf("is shorter than A2AD_RETRY_BACKOFF_BASE, %s", formatDuration(c.RetryBackoffBase)))
	}
	if c.Replica != "" && !replicaName.MatchString(c.Replica) {
		bad("A2AD_REPLICA", "write up to 40 letters, digits, dots, dashes or underscores")
	}
	return slices.Concat(faults, c.OIDC.check(), c.TLS.check(), c.Database.check())
}

// replicaName leaves room for "a2ad-" and the role in application_name, which holds 63 bytes.
var replicaName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,40}$`)

func (d *Database) check() []fault {
	if !d.DatabaseURL.IsSet() || validDSN(d.DatabaseURL.Reveal()) {
		return nil
	}
	return []fault{{Name: "A2AD_DATABASE_URL", Text: "not a PostgreSQL URL: write for example " + exampleDSN}}
}

const exampleDSN = "postgres://a2ad:password@localhost:5432/a2ad"

// validDSN takes URLs and the keyword/value form; the driver checks the details.
func validDSN(dsn string) bool {
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		return maskDSN(dsn) != redacted
	}
	return !strings.Contains(dsn, "://") && strings.Contains(dsn, "=")
}

// checkServe adds what serve cannot do without.
func (c *Config) checkServe() []fault {
	var faults []fault
	if !c.DatabaseURL.IsSet() {
		faults = append(faults, fault{Name: "A2AD_DATABASE_URL", Text: "name the PostgreSQL to work on, for example " + exampleDSN})
	}
	if c.Agents == "" {
		faults = append(faults, fault{Name: "A2AD_AGENTS", Text: "name an agent file or a directory of agent files, for example /etc/a2ad/agents"})
	}
	if c.CardSigning && c.Keys.Empty() {
		faults = append(faults, fault{Name: "A2AD_CARD_SIGNING", Text: "set A2AD_KEYS too: the key that signs is kept sealed"})
	}
	return append(faults, c.check()...)
}

const serveHint = `To try a2ad without any configuration run "a2ad dev".`

func (c *ServeCmd) faultHint() string { return serveHint }
func (c *DevCmd) devDefaults() bool   { return true }

// check also reads the agent files, so that their faults are told together with those of the
// settings.
func (c *ServeCmd) check() []fault {
	faults := c.checkServe()
	if c.Agents != "" {
		faults = append(faults, c.checkAgents(nil)...)
	}
	return faults
}

func (c *DevCmd) check() []fault {
	return append(c.Config.check(), c.checkAgents(agents.Builtin())...)
}

func (c *Config) checkAgents(builtin []agents.File) []fault {
	_, err := loadAgents(*c, builtin)
	var wrong agents.Faults
	var unknown *noSuchAgentError
	switch {
	case errors.As(err, &wrong):
		faults := make([]fault, len(wrong))
		for i, f := range wrong {
			faults[i] = fault{Name: "A2AD_AGENTS", Text: f.String()}
		}
		return faults
	case errors.As(err, &unknown):
		return []fault{{Name: "A2AD_DEFAULT_AGENT", Text: unknown.text()}}
	}
	return nil
}

// ReplicaName returns the name that was set, else one that no other process has.
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

// Checks says what the program makes of its surroundings before it starts.
type Checks struct {
	Strict bool `type:"setting" name:"strict" def:"off" help:"Do not start when the environment has an A2AD_ variable that is no setting."`
}

func (c *Checks) strict() bool { return c.Strict }

// Logger returns the log of a server. It goes to stderr: stdout belongs to what people asked for.
func (l *Logs) Logger(app *App) *slog.Logger {
	opts := &slog.HandlerOptions{Level: l.LogLevel}
	if l.LogFormat == "text" {
		return slog.New(explaining{slog.NewTextHandler(app.Stderr, opts)})
	}
	return slog.New(explaining{slog.NewJSONHandler(app.Stderr, opts)})
}
