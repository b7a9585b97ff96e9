package replica

import (
	"net"
	"net/netip"
	"reflect"
	"testing"

	"github.com/a2ad/a2ad/internal/config"
)

// TestWebhooksReachNoListenerOfTheirServer covers the listeners, and the public addresses of the
// server.
func TestWebhooksReachNoListenerOfTheirServer(t *testing.T) {
	t.Parallel()
	open := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	l := &listeners{api: open(), grpc: open(), admin: open()}
	cfg := &config.Config{}
	cfg.PushAllowHTTP, cfg.PushAllowCIDRs = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	cfg.GRPCPublicAddress, cfg.PublicURL = "grpc.example:9000", "https://a2a.example:443"
	policy, err := pushPolicy(cfg, public{&cfg.Listeners, l})
	if err != nil {
		t.Fatal(err)
	}
	for what, url := range map[string]string{
		"the API": "http://" + l.api.Addr().String(), "gRPC": "http://" + l.grpc.Addr().String(),
		"the admin listener": "http://" + l.admin.Addr().String(),
		"the public address": "https://a2a.example/x", "the public address of gRPC": "https://grpc.example:9000/x",
	} {
		if _, err := policy.CheckURL(url); err == nil {
			t.Errorf("a webhook at %s (%s) is accepted", what, url)
		}
	}
	// Add new listeners to all.
	fields := 0
	for f := range reflect.TypeFor[listeners]().Fields() {
		if f.Type == reflect.TypeFor[net.Listener]() {
			fields++
		}
	}
	if got := len(l.all()); got != fields {
		t.Errorf("all has %d of %d listeners", got, fields)
	}
}
