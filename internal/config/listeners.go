package config

import "time"

// Admin is the listener for operators. The healthcheck command has only this one.
type Admin struct {
	AdminListen Listen `type:"setting" name:"admin-listen" def:"127.0.0.1:9090"`
}

// Listeners says where the server listens, and how long it waits for requests.
type Listeners struct {
	Listen Listen `type:"setting" name:"listen" def:"127.0.0.1:8080"`
	Admin
	GRPCListen        GRPCListen    `type:"setting" name:"grpc-listen" def:"off"`
	PublicURL         BaseURL       `type:"setting" name:"public-url"`
	ConsoleTraceURL   TraceURL      `type:"setting" name:"console-trace-url" hidden:""`
	GRPCPublicAddress Listen        `type:"setting" name:"grpc-public-address" hidden:""`
	GRPCCard          string        `type:"setting" name:"grpc-card" def:"address" oneof:"address,url,off" hidden:""`
	ReadHeaderTimeout time.Duration `type:"setting" name:"read-header-timeout" def:"5s" min:"1ms" hidden:""`
	ReadTimeout       time.Duration `type:"setting" name:"read-timeout" def:"15s" min:"1ms" hidden:""`
	WriteTimeout      time.Duration `type:"setting" name:"write-timeout" def:"30s" min:"1ms" hidden:""`
	HTTPIdleTimeout   time.Duration `type:"setting" name:"http-idle-timeout" def:"120s" min:"1ms" hidden:""`
	ReadyTimeout      time.Duration `type:"setting" name:"ready-timeout" def:"1s" min:"1ms" hidden:""`
	DrainDelay        time.Duration `type:"setting" name:"drain-delay" def:"0s" min:"0s" hidden:""`
	DrainTimeout      time.Duration `type:"setting" name:"drain-timeout" def:"20s" min:"0s"`
}

func (l *Listeners) check() (f faults) {
	if l.Listen == "" {
		f.add("A2AD_LISTEN", "the API cannot be off")
	}
	if l.Listen == l.AdminListen && !l.Listen.AnyPort() {
		f.add("A2AD_ADMIN_LISTEN", "is the address of the API too: choose another port")
	}
	own := l.GRPCListen.Own()
	switch {
	case own == "" || own.AnyPort():
	case own == l.Listen:
		f.add("A2AD_GRPC_LISTEN",
			"is the address of the API too: write same to serve gRPC on that port, or choose another one")
	case own == l.AdminListen:
		f.add("A2AD_GRPC_LISTEN", "is the address of another listener too: choose another port")
	}
	return f
}
