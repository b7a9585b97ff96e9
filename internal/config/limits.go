package config

import "log/slog"

// Protocol has switches for differences between clients and test kits.
type Protocol struct {
	Lenient03        bool   `type:"setting" name:"lenient-03" def:"on" hidden:""`
	LenientVersion   bool   `type:"setting" name:"lenient-version" def:"off" hidden:""`
	CardLegacyFields bool   `type:"setting" name:"card-legacy-fields" def:"on" hidden:""`
	CardSigning      bool   `type:"setting" name:"card-signing" def:"off" hidden:""`
	CardWorkshop     bool   `type:"setting" name:"card-workshop-fields" def:"off" hidden:""`
	ErrorProfile     string `type:"setting" name:"error-profile" def:"1.0.1" oneof:"1.0.1,1.0.0" hidden:""`
}

// Limits bound what clients and agents may send and store.
type Limits struct {
	MaxBody      Bytes `type:"setting" name:"max-body" def:"4MiB" min:"1KiB"`
	MaxHeader    Bytes `type:"setting" name:"max-header" def:"32KiB" min:"1KiB" hidden:""`
	MaxJSONDepth int   `type:"setting" name:"max-json-depth" def:"64" min:"8" hidden:""`
	MaxParts     int   `type:"setting" name:"max-parts" def:"100" min:"1" hidden:""`
	MaxPart      Bytes `type:"setting" name:"max-part" def:"1MiB" min:"1" hidden:""`
	MaxMessage   Bytes `type:"setting" name:"max-message" def:"4MiB" min:"1" hidden:""`
	MaxHistory   int   `type:"setting" name:"max-history" def:"10000" min:"1" hidden:""`
	MaxArtifacts int   `type:"setting" name:"max-artifacts" def:"1000" min:"1" hidden:""`
	MaxSteps     int   `type:"setting" name:"max-steps" def:"10000" min:"1" hidden:""`
	MaxChunks    int   `type:"setting" name:"max-chunks" def:"100000" min:"1" hidden:""`
	MaxTask      Bytes `type:"setting" name:"max-task" def:"64MiB" min:"1KiB" hidden:""`
	MaxID        Bytes `type:"setting" name:"max-id" def:"256" min:"36" hidden:""`
	MaxCursor    Bytes `type:"setting" name:"max-cursor" def:"1KiB" min:"64" hidden:""`
	MaxClaims    int   `type:"setting" name:"max-claims" def:"1000" min:"1" hidden:""`
	MaxCalls     int   `type:"setting" name:"max-calls" def:"1000" min:"1" hidden:""`
	MaxCallDepth int   `type:"setting" name:"max-call-depth" def:"16" min:"1" hidden:""`
	MaxInFlight  int   `type:"setting" name:"max-tasks-in-flight" def:"10000" min:"0" hidden:""`
	MemoryBudget Bytes `type:"setting" name:"memory-budget" min:"16MiB"`
	MaxPending   int   `type:"setting" name:"max-pending" def:"2000" min:"1" hidden:""`
	Rates
}

// Rates bound how often one owner may call one replica.
type Rates struct {
	RateReads      Rate     `type:"setting" name:"rate-reads" def:"5000,10000" dev:"off" hidden:""`
	RateSends      Rate     `type:"setting" name:"rate-sends" def:"2000,4000" dev:"off" hidden:""`
	RateStreams    Rate     `type:"setting" name:"rate-streams" def:"500,1000" dev:"off" hidden:""`
	RatePushWrites Rate     `type:"setting" name:"rate-push-writes" def:"500,1000" dev:"off" hidden:""`
	RateSignIns    Rate     `type:"setting" name:"rate-sign-ins" def:"1,30" dev:"off" hidden:""`
	TrustedProxies Prefixes `type:"setting" name:"trusted-proxies" def:"none"`
}

// Logs says what is written to stderr.
type Logs struct {
	LogLevel  slog.Level `type:"setting" name:"log-level" def:"info"`
	LogFormat string     `type:"setting" name:"log-format" def:"json" dev:"text" oneof:"json,text"`
}

// Client says which server a client connects to.
type Client struct {
	URL    BaseURL `type:"setting" name:"url" def:"http://127.0.0.1:8080"`
	APIKey Secret  `type:"setting" name:"api-key" kong:"-" secret:"yes"`
}

// Operator says where the commands of operators work: on a server, or else on a database.
type Operator struct {
	Server BaseURL `type:"setting" name:"server"`
}

// OperatorGroup is Operator under the same title as Client in the help.
type OperatorGroup struct {
	Operator `group:"connection"`
}

// ClientGroup is Client under its own title in the help.
type ClientGroup struct {
	Client `group:"connection"`
}
