package admin_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/a2ad/a2ad/internal/admin"
)

// TestDoctorRunsOnceAtATime: a second request is refused while the checks run, and not after them.
func TestDoctorRunsOnceAtATime(t *testing.T) {
	t.Parallel()
	began, finish := make(chan bool), make(chan struct{})
	f := newFixture(t, func(c *admin.Config) {
		c.Doctor = func(ctx context.Context, offline bool) []admin.Finding {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the checks have no time limit")
			}
			began <- offline
			<-finish
			return []admin.Finding{{Check: "keys", Level: "warning", Text: "no keys", Fix: "Set A2AD_KEYS."}}
		}
	})
	for _, path := range []string{"/doctor", "/doctor?offline=true"} {
		first := make(chan reply)
		go func() { first <- f.get("reader", path) }()
		if offline := <-began; offline != (path != "/doctor") {
			t.Errorf("GET %s: offline %t", path, offline)
		}
		got := f.get("both", "/doctor")
		if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
			t.Errorf("while the checks run: %d %s", got.status, got.body)
		}
		finish <- struct{}{}
		report := read[admin.DoctorReport](f, <-first)
		if len(report.Findings) != 1 || report.Findings[0].Fix != "Set A2AD_KEYS." {
			t.Errorf("%+v", report)
		}
	}
}
