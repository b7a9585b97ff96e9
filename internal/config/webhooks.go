package config

import "time"

// Webhooks says how notifications are delivered.
type Webhooks struct {
	PushRetry Durations `type:"setting" name:"push-retry" def:"0,5s,30s,2m,10m,30m,1h,3h,6h,12h,24h" hidden:""`

	PushThrottleWait   time.Duration  `type:"setting" name:"push-throttle-wait" def:"60s" min:"0s" hidden:""`
	PushBreaker        Breaker        `type:"setting" name:"push-breaker" def:"5,30s,15m" hidden:""`
	PushDisableAfter   time.Duration  `type:"setting" name:"push-disable-after" def:"120h" min:"1ms" hidden:""`
	PushTimeout        time.Duration  `type:"setting" name:"push-timeout" def:"15s" min:"1ms" hidden:""`
	PushAllowHTTP      bool           `type:"setting" name:"push-allow-http" def:"off" dev:"on" hidden:""`
	PushAllowCIDRs     Prefixes       `type:"setting" name:"push-allow-cidrs" def:"none" dev:"127.0.0.0/8,::1/128"`
	PushProxy          BaseURL        `type:"setting" name:"push-proxy" hidden:""`
	PushSigningSecrets SigningSecrets `type:"setting" name:"push-signing-secrets" kong:"-" secret:"yes"`
	PushConcurrency    int            `type:"setting" name:"push-concurrency" def:"256" min:"1" hidden:""`
	PushPerDestination int            `type:"setting" name:"push-per-destination" def:"32" min:"1" hidden:""`
	PushPoll           time.Duration  `type:"setting" name:"push-poll" def:"1s" min:"1ms" hidden:""`
	PushRetention      Retention      `type:"setting" name:"push-retention" def:"2160h" hidden:""`
	PushMaxBody        Bytes          `type:"setting" name:"push-max-body" def:"256KiB" min:"1KiB" hidden:""`
	MaxPushConfigs     int            `type:"setting" name:"max-push-configs" def:"10" min:"0" hidden:""`
	MaxPushURL         Bytes          `type:"setting" name:"max-push-url" def:"2KiB" min:"1" hidden:""`
	MaxPushSecret      Bytes          `type:"setting" name:"max-push-secret" def:"4KiB" min:"1" hidden:""`
	MaxPushAnswer      Bytes          `type:"setting" name:"max-push-answer" def:"16KiB" min:"0" hidden:""`
	KeepPushAnswer     Bytes          `type:"setting" name:"keep-push-answer" def:"4KiB" min:"0" hidden:""`
}
