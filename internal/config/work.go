package config

import "time"

// Work says which agents there are, and how leases, retries and retention work.
type Work struct {
	Agents           string        `type:"setting" name:"agents"`
	DefaultAgent     string        `type:"setting" name:"default-agent"`
	Workers          int           `type:"setting" name:"workers" def:"1000" min:"0"`
	Commands         int           `type:"setting" name:"commands" min:"1"`
	Replica          string        `type:"setting" name:"replica"`
	LeaseTTL         time.Duration `type:"setting" name:"lease-ttl" def:"30s" min:"300ms"`
	PollInterval     time.Duration `type:"setting" name:"poll-interval" def:"1s" min:"1ms" hidden:""`
	WakeInterval     time.Duration `type:"setting" name:"wake-interval" def:"5ms" min:"0s" hidden:""`
	RunDeadline      time.Duration `type:"setting" name:"run-deadline" def:"1h" min:"1ms"`
	IdleTimeout      time.Duration `type:"setting" name:"idle-timeout" def:"5m" min:"1ms"`
	MaxAttempts      int           `type:"setting" name:"max-attempts" def:"5" min:"1"`
	RetryBackoffBase time.Duration `type:"setting" name:"retry-backoff-base" def:"1s" min:"0s" hidden:""`
	RetryBackoffMax  time.Duration `type:"setting" name:"retry-backoff-max" def:"1m" min:"0s" hidden:""`
	UnreachableLimit time.Duration `type:"setting" name:"unreachable-limit" def:"24h" min:"0s" hidden:""`
	OnExhausted      string        `type:"setting" name:"on-exhausted" def:"fail" oneof:"fail,park" hidden:""`
	ParkFor          Retention     `type:"setting" name:"park-for" def:"never" hidden:""`
	RescueInterval   time.Duration `type:"setting" name:"rescue-interval" def:"1s" min:"1ms" hidden:""`
	RescueGrace      time.Duration `type:"setting" name:"rescue-grace" def:"1.5s" min:"1s" hidden:""`
	SweepInterval    time.Duration `type:"setting" name:"sweep-interval" def:"10m" min:"1ms" hidden:""`
	Retention        Retention     `type:"setting" name:"retention" def:"never" hidden:""`
	LogRetention     Retention     `type:"setting" name:"log-retention" def:"never" hidden:""`
	AttemptRetention Retention     `type:"setting" name:"attempt-retention" def:"9600h" hidden:""`
	AuditRetention   Retention     `type:"setting" name:"audit-retention" def:"9600h" hidden:""`
	SigninRetention  Retention     `type:"setting" name:"signin-retention" def:"720h" hidden:""`
	RetireInterval   time.Duration `type:"setting" name:"retire-interval" def:"1m" min:"1ms" hidden:""`
}

// Streams says how long callers wait and how streams are kept alive.
type Streams struct {
	BlockingMaxWait time.Duration `type:"setting" name:"blocking-max-wait" def:"45s" min:"0s"`
	SSEPing         time.Duration `type:"setting" name:"sse-ping" def:"15s" min:"1ms"`
	SSEWriteTimeout time.Duration `type:"setting" name:"sse-write-timeout" def:"10s" min:"1ms" hidden:""`
	SSERetry        time.Duration `type:"setting" name:"sse-retry" def:"500ms" min:"1ms" hidden:""`
	MaxStreams      int           `type:"setting" name:"max-streams" def:"10000" min:"1" hidden:""`
	MaxOwnerStreams int           `type:"setting" name:"max-streams-per-owner" def:"100" min:"1" hidden:""`
}
