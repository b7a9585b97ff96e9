package config

// description is what people read about a setting.
type description struct {
	help  string // of the flag, and in docs/reference/configuration.md
	value string // placeholder of the flag; "" for that of the type
	auto  string // what an empty value means
}

// descriptions has the settings by the names of their flags.
var descriptions = map[string]description{
	// Database
	"database-url": {help: "PostgreSQL to connect to. Without it, commands other than serve use the database of dev " +
		"under --data-dir."},
	"data-dir":  {help: "Where dev keeps its PostgreSQL.", value: "DIR"},
	"pg-bindir": {help: "Directory of the PostgreSQL programs that dev starts.", value: "DIR", auto: "searched"},
	"db-pool": {help: "Connections for requests and attempts. Four more listen, renew leases and watch the " +
		"database."},
	"pool-timeout": {help: "Longest wait for a free connection."},
	"connect-timeout": {help: "Longest wait for a new connection to PostgreSQL. If PostgreSQL is unreachable, " +
		"calls fail after this time; once that has lasted longer, they fail at once."},
	"tcp-timeout": {help: "Longest wait until PostgreSQL's machine acknowledges what was sent (TCP_USER_TIMEOUT, " +
		"on Linux). Keepalives detect a silent machine in about this time."},
	"statement-timeout": {help: "Longest run of one statement. A connection that has not answered a second later " +
		"is closed."},
	"lock-timeout":    {help: "Longest wait for a row lock."},
	"idle-tx-timeout": {help: "Longest pause inside a transaction."},
	"listener-ping":   {help: "How often the listening connection proves that it is alive."},

	// Listeners
	"admin-listen": {help: "Address for operators: health, metrics and profiles; or off."},
	"listen":       {help: "Address of the API."},
	"grpc-listen":  {help: "Address of the API over gRPC, or same to share the port of the API, or off."},
	"public-url":   {help: "Base URL of the server in agent cards.", auto: "from the listener"},
	"console-trace-url": {help: "Address of a trace for links of the console, with {trace_id} in place of its id, " +
		"such as https://jaeger.example.org/trace/{trace_id}."},
	"grpc-public-address": {value: "HOST:PORT", auto: "from the listener", help: "Address of gRPC in agent cards. " +
		"Without it, the host of A2AD_PUBLIC_URL and the port of the listener."},
	"grpc-card": {value: "FORM", help: "How agent cards name gRPC: address, which is host:port for the official " +
		"clients; url, which Google ADK requires; or off."},
	"read-header-timeout": {help: "Longest wait for the header of a request."},
	"read-timeout":        {help: "Longest wait for a whole request."},
	"write-timeout":       {help: "Longest time to send a response that is not a stream."},
	"http-idle-timeout":   {help: "How long an idle connection is kept open."},
	"ready-timeout":       {help: "Longest wait for the database when /readyz is asked."},
	"drain-delay": {help: "How long a server that was told to stop only reports that it is not ready, so that " +
		"proxies find other replicas before it stops listening."},
	"drain-timeout": {help: "How long attempts may continue after the signal to stop."},

	// Access
	"auth": {help: "Whether callers must sign in: required, or none on loopback listeners.", value: "WHICH"},
	"auth-recheck": {help: "How long a stream, a blocking send or a claim may continue after its credential was " +
		"revoked or has expired."},
	"cors-origins": {value: "ORIGINS", help: "Origins of web pages that may use the server from a browser, such as " +
		"https://app.example.org."},
	"sharing": {help: "Who sees a task: its owner, or every owner of the tenant.", value: "WHO"},
	"keys": {help: "Keys that encrypt stored secrets: id:base64-of-32-bytes, separated by commas. The first key " +
		"encrypts."},
	"tls-cert": {value: "FILE", help: "Certificate chain of the API and of gRPC, in PEM. It is read again when the " +
		"file changes."},
	"tls-key":       {help: "Private key of the certificate.", value: "FILE"},
	"tls-client-ca": {help: "Certificate authorities whose client certificates sign callers in.", value: "FILE"},
	"mtls-tenant-from": {value: "WHAT", help: "What names the tenant of a client certificate: nothing in it (fixed), " +
		"its organization, or the host of its first URI."},
	"mtls-tenant": {help: "Tenant of client certificates that do not name one.", value: "TEXT"},
	"mtls-scopes": {help: "Scopes of callers with a client certificate.", value: "SCOPES"},
	"mtls-proxies": {help: "Address ranges of proxies that end TLS and pass on the client's certificate in " +
		"X-Forwarded-Client-Cert."},
	"oidc-issuer":   {help: "Identity provider whose tokens sign callers in, exactly as tokens name it in iss."},
	"oidc-audience": {help: "Value of aud in tokens for this server.", value: "TEXT"},
	"oidc-jwks-url": {help: "URL of the issuer's keys.", auto: "discovered"},
	"oidc-tenant-claim": {value: "CLAIM", help: "Claim that names the tenant. Without it, all tokens belong to " +
		"A2AD_OIDC_TENANT."},
	"oidc-tenant":      {help: "Tenant of tokens when no claim names it.", value: "TEXT"},
	"oidc-owner-claim": {help: "Claims that name the owner. The first one that a token has counts.", value: "CLAIMS"},
	"oidc-scope-claim": {help: "Claims that list scopes such as tasks:read, as text or as a list.", value: "CLAIMS"},
	"oidc-oauth2": {value: "JSON", help: "How clients get tokens, for agent cards: a JSON object with one OAuth flow " +
		"under flows, and oauth2MetadataUrl."},
	"console-oidc-client-id": {value: "ID", help: "Client of the identity provider with which people sign in to the " +
		"console. Its redirect URI is A2AD_PUBLIC_URL/console/sign-in/callback."},
	"console-oidc-client-secret": {help: "Secret of that client. Without it, the client is a public one, with PKCE."},
	"console-oidc-scopes": {value: "SCOPES", help: "Scopes that the console asks the identity provider for: openid, " +
		"and those that put the claims of A2AD_OIDC_… into the ID token."},
	"oidc-scopes": {help: "Scopes that every token has in addition to its own.", value: "SCOPES"},

	// Agents and work
	"agents": {help: "Agent file, or directory of agent files.", value: "PATH"},
	"default-agent": {value: "NAME", auto: "the file with default: true, else the only one, else echo",
		help: "Agent that answers at /."},
	"workers": {help: "Agents that run at the same time; 0 only serves the API."},
	"commands": {auto: "four for each CPU, at least 16, and at most one for each 64 MiB of memory",
		help: "Of these, agents that run as commands (exec) on the machine of this replica."},
	"replica": {value: "NAME", auto: "host name, pid and a random word",
		help: "Name of this replica in leases and database connections."},
	"lease-ttl": {help: "How long a lease on a task or on a delivery lasts. It is renewed after a third of this " +
		"time."},
	"poll-interval":      {help: "How often to poll for work and events when no wake-up arrives."},
	"wake-interval":      {help: "How long wake-ups for other replicas are collected before they are sent."},
	"run-deadline":       {help: "Longest turn of an agent, over all its attempts."},
	"idle-timeout":       {help: "Longest time that a running agent may report nothing."},
	"max-attempts":       {help: "Attempts at one turn."},
	"retry-backoff-base": {help: "Delay before the second attempt. It doubles for each further attempt, with jitter."},
	"retry-backoff-max":  {help: "Longest delay between two attempts."},
	"unreachable-limit":  {help: "How long a task waits for an agent that cannot be reached. Then it fails."},
	"on-exhausted": {help: "What happens to a task whose attempts are used up: it fails, or is parked until an " +
		"operator resumes it.", value: "fail|park"},
	"park-for":        {help: "How long a task stays parked, or never. Then it fails.", value: "DURATION"},
	"rescue-interval": {help: "How often to poll for tasks whose lease has expired or whose replica is gone."},
	"rescue-grace": {help: "How long a replica may have no connection to the database before others take its tasks " +
		"over, at least 1 s."},
	"sweep-interval": {help: "How often to poll for rows that are old enough to be removed."},
	"retention":      {help: "Time after its end at which a task is deleted, or never."},
	"log-retention":  {help: "Time after the end of a task at which its events are removed, or never."},
	"attempt-retention": {help: "Time after the end of a task at which the records of its attempts are removed, or " +
		"never."},
	"audit-retention": {help: "Age at which entries of the audit log are removed, at least 30 days, or never."},
	"signin-retention": {help: "Age at which failed sign-ins are removed from the audit log, at least one day, or " +
		"never."},
	"retire-interval": {help: "How often to poll for tasks that are old enough to be deleted."},

	// Streams and waiting
	"blocking-max-wait": {help: "Longest wait of a blocking send. After that the response is the task as it is."},
	"sse-ping":          {help: "Time after which a quiet stream sends a comment."},
	"sse-write-timeout": {help: "Longest write to a stream. A slower reader is disconnected and can resume."},
	"sse-retry": {help: "Delay before a client reconnects to a stream that ended early, as the stream " +
		"tells it."},
	"max-streams":           {help: "Largest number of streams in one replica."},
	"max-streams-per-owner": {help: "Largest number of streams of one owner in one replica."},

	// Webhooks
	"push-retry":         {help: "Delays before attempt 1, 2 and so on of a delivery; n values mean n attempts."},
	"push-throttle-wait": {help: "Shortest delay after a timeout or the status 429, 502, 503 or 504."},
	"push-breaker": {help: "Circuit breaker of a destination: the failures that open it, then how long it stays open " +
		"at first and at most."},
	"push-disable-after": {help: "How long a destination may fail before it is disabled."},
	"push-timeout":       {help: "Longest attempt at a delivery."},
	"push-allow-http":    {help: "Deliver to http URLs too."},
	"push-allow-cidrs":   {help: "Private address ranges that the server may call."},
	"push-proxy":         {help: "Proxy for webhooks. It must refuse private addresses itself."},
	"push-signing-secrets": {help: "Secrets for v1 signatures, which begin with whsec_, separated by " +
		"commas."},
	"push-concurrency": {help: "Deliveries of one replica at the same time."},
	"push-per-destination": {help: "Deliveries to one destination at the same time, over all replicas. " +
		"At most 8, or a quarter of it, if the destination is slow or fails."},
	"push-poll": {help: "How often to poll for due deliveries when no wake-up arrives; at least once per " +
		"A2AD_POLL_INTERVAL."},
	"push-retention": {help: "Age at which failed attempts, responses and deleted webhooks are removed, or never."},
	"push-max-body": {help: "Size of a notification. A larger task is sent without its history, " +
		"then also without its artifacts, then also without its status message."},
	"max-push-configs": {help: "Webhooks of one task."},
	"max-push-url":     {help: "Length of a webhook's URL."},
	"max-push-secret":  {help: "Length of a webhook's token or credentials."},
	"max-push-answer":  {help: "How much of a webhook's response is read."},
	"keep-push-answer": {help: "How much of a webhook's response is stored."},

	// Protocol
	"lenient-03":         {help: "Accept dialects of A2A 0.3 that are not ambiguous."},
	"lenient-version":    {help: "Serve A2A 1.0 methods without an A2A-Version header."},
	"card-legacy-fields": {help: "Add the 0.3 fields to the 1.0 agent card."},
	"card-signing":       {help: "Sign 1.0 agent cards with a key of the server, published at /.well-known/jwks.json."},
	"card-workshop-fields": {help: "Add the fields that workshop material asks for to the 0.3 agent card: " +
		"stateManagement, authentication, and schemas of skills."},
	"error-profile": {value: "VERSION",
		help: "A2A version that decides which status an error of 1.0 has over HTTP+JSON and gRPC."},

	// Limits
	"max-body":       {help: "Size of a request."},
	"max-header":     {help: "Size of a request's header."},
	"max-json-depth": {help: "Nesting depth of JSON."},
	"max-parts":      {help: "Parts of one message."},
	"max-part":       {help: "Size of one part."},
	"max-message":    {help: "Size of one message: its parts and metadata."},
	"max-history":    {help: "Messages of one task."},
	"max-artifacts":  {help: "Artifacts of one task."},
	"max-steps":      {help: "Steps and waits of one task."},
	"max-calls":      {help: "Tasks that one task may call."},
	"max-call-depth": {help: "Calls between a task and the client's task above it."},
	"max-chunks":     {help: "Artifact chunks of one task."},
	"max-task":       {help: "Size of one task."},
	"max-id":         {help: "Length of the ids that clients choose."},
	"max-cursor":     {help: "Length of a page token."},
	"max-claims":     {help: "Claims of remote workers that wait in one replica."},
	"max-tasks-in-flight": {help: "Tasks of one owner that are queued or running; 0 for no " +
		"limit."},
	"memory-budget": {auto: "half of what the cgroup or GOMEMLIMIT allows, else a quarter of the machine",
		help: "Memory of one replica for incoming requests and for responses. " +
			"When it is used up, further requests wait for a moment and are then refused."},
	"max-pending": {help: "Reads that may run in the database or wait for it, in one replica; the same " +
		"number applies to writes. Streams that begin do not count."},

	// Rates
	"rate-reads":       {help: "Reads of one owner: per second, and in one burst; or off."},
	"rate-sends":       {help: "Messages and cancels of one owner: per second, and in one burst; or off."},
	"rate-streams":     {help: "Streams that one owner opens: per second, and in one burst; or off."},
	"rate-push-writes": {help: "Webhooks that one owner sets or deletes: per second, and in one burst; or off."},
	"rate-sign-ins":    {help: "Failed sign-ins from one address: per second, and in one burst; or off."},
	"trusted-proxies":  {help: "Address ranges of proxies whose X-Forwarded-For names the client's address."},

	// Logs
	"log-level":  {help: "debug, info, warn or error.", value: "LEVEL"},
	"log-format": {help: "json or text.", value: "FORMAT"},

	// Checks
	"strict": {help: "Refuse to start when the environment has an A2AD_ variable that is not a setting."},

	// Connection of clients and of operators
	"url":     {help: "Server to connect to."},
	"server":  {help: "Server to ask, with the key in A2AD_API_KEY, instead of a database."},
	"api-key": {help: "API key to sign in with."},
}
