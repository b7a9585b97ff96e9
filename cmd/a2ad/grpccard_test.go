package main

import (
	"net"
	"testing"

	"github.com/a2ad/a2ad/internal/config"
)

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

type listenerAt struct {
	net.Listener
	at address
}

func (l listenerAt) Addr() net.Addr { return l.at }

func TestWhereCardsSayThatGRPCIs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		listen        config.GRPCListen
		form, public  string
		publicAddress config.Listen
		want          string
	}{
		{"", "address", "", "", ""}, {"same", "off", "", "", ""}, {"127.0.0.1:0", "off", "", "h:1", ""},
		{"127.0.0.1:0", "address", "", "", "127.0.0.1:9091"}, {"127.0.0.1:0", "address", "https://a.example/x", "", "a.example:9091"},
		{"127.0.0.1:0", "address", "https://a.example", "g.example:443", "g.example:443"}, {"127.0.0.1:0", "url", "https://a.example", "g.example:443", "https://g.example:443"},
		{"127.0.0.1:0", "url", "", "", "http://127.0.0.1:9091"},
		{"same", "address", "", "", "127.0.0.1:8080"}, {"same", "address", "https://a.example", "", "a.example:443"}, {"same", "address", "http://a.example", "", "a.example:80"},
		{"same", "address", "https://a.example:8443/x", "", "a.example:8443"}, {"same", "url", "https://a.example/x", "", "https://a.example"},
		{"same", "url", "", "", "http://127.0.0.1:8080"}, {"same", "url", "https://a.example:8443", "", "https://a.example:8443"},
	} {
		r := &replica{api: listenerAt{at: "127.0.0.1:8080"}}
		if tc.listen.Own() != "" {
			r.grpc = listenerAt{at: "127.0.0.1:9091"}
		}
		r.cfg.GRPCListen, r.cfg.GRPCCard, r.cfg.PublicURL, r.cfg.GRPCPublicAddress = tc.listen, tc.form, config.BaseURL(tc.public), tc.publicAddress
		public := tc.public
		if public == "" {
			public = "http://127.0.0.1:8080"
		}
		if got := r.grpcAddress(public); got != tc.want {
			t.Errorf("%+v: %q", tc, got)
		}
	}
}
