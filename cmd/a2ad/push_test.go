package main

import (
	"net"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/term"
)

// Webhooks reach no listener of this process, nor the addresses under which callers do.
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
	r := &replica{api: open(), grpc: open(), admin: open()}
	r.cfg.PushAllowHTTP, r.cfg.PushAllowCIDRs = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	r.cfg.GRPCPublicAddress = "grpc.example:9000"
	policy, err := r.pushPolicy("https://a2a.example:443")
	if err != nil {
		t.Fatal(err)
	}
	for what, url := range map[string]string{
		"the API": "http://" + r.api.Addr().String(), "gRPC": "http://" + r.grpc.Addr().String(), "the admin listener": "http://" + r.admin.Addr().String(),
		"the public address": "https://a2a.example/x", "the public address of gRPC": "https://grpc.example:9000/x",
	} {
		if _, err := policy.CheckURL(url); err == nil {
			t.Errorf("a webhook at %s (%s) is accepted", what, url)
		}
	}
	// Of a listener that is added listeners has to know.
	fields := 0
	for f := range reflect.TypeFor[replica]().Fields() {
		if f.Type == reflect.TypeFor[net.Listener]() {
			fields++
		}
	}
	if got := len(r.listeners()); got != fields {
		t.Errorf("listeners knows %d of %d", got, fields)
	}
}

// A webhook is not tried before its destination is: push ls shows the later of the two times.
func TestPushLsShowsTheDestinationsWait(t *testing.T) {
	t.Parallel()
	retry, wait := someTime.Add(time.Second), someTime.Add(time.Hour)
	for _, tt := range []struct {
		name string
		row  pushRow
		want string
	}{
		{"its own delay", pushRow{State: "active", NextAttemptAt: &wait, OpenUntil: &retry}, term.Moment(wait)},
		{"the destination's wait", pushRow{State: "active", NextAttemptAt: &retry, OpenUntil: &wait}, term.Moment(wait)},
		{"no breaker", pushRow{State: "active", NextAttemptAt: &retry}, term.Moment(retry)},
		{"a disabled destination", pushRow{State: "active", NextAttemptAt: &retry, DisabledAt: &retry}, "-"},
		{"dead", pushRow{State: "dead", NextAttemptAt: &retry}, "-"},
		{"deleted", pushRow{State: "active", NextAttemptAt: &retry, DeletedAt: &retry}, "-"},
		{"nothing to deliver", pushRow{State: "active"}, "-"},
	} {
		if got := tt.row.next(); got != tt.want {
			t.Errorf("%s: next try %s, want %s", tt.name, got, tt.want)
		}
	}
}
