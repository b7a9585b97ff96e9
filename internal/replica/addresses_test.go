package replica

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
		{"127.0.0.1:0", "address", "", "", "127.0.0.1:9091"},
		{"127.0.0.1:0", "address", "https://a.example/x", "", "a.example:9091"},
		{"127.0.0.1:0", "address", "https://a.example", "g.example:443", "g.example:443"},
		{"127.0.0.1:0", "url", "https://a.example", "g.example:443", "https://g.example:443"},
		{"127.0.0.1:0", "url", "", "", "http://127.0.0.1:9091"},
		{"same", "address", "", "", "127.0.0.1:8080"}, {"same", "address", "https://a.example", "", "a.example:443"},
		{"same", "address", "http://a.example", "", "a.example:80"},
		{"same", "address", "https://a.example:8443/x", "", "a.example:8443"},
		{"same", "url", "https://a.example/x", "", "https://a.example"},
		{"same", "url", "", "", "http://127.0.0.1:8080"},
		{"same", "url", "https://a.example:8443", "", "https://a.example:8443"},
	} {
		l := &listeners{api: listenerAt{at: "127.0.0.1:8080"}}
		if tc.listen.Own() != "" {
			l.grpc = listenerAt{at: "127.0.0.1:9091"}
		}
		cfg := &config.Listeners{
			GRPCListen: tc.listen, GRPCCard: tc.form, PublicURL: config.BaseURL(tc.public),
			GRPCPublicAddress: tc.publicAddress,
		}
		if got := (public{cfg, l}).grpcOnCards(); got != tc.want {
			t.Errorf("%+v: %q", tc, got)
		}
	}
}
