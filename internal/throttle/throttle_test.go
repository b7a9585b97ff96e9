package throttle_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/throttle"
)

var (
	ann = auth.Principal{Tenant: "t", Owner: "ann", Method: auth.MethodAPIKey}
	bob = auth.Principal{Tenant: "t", Owner: "bob", Method: auth.MethodAPIKey}
)

func TestAdmitCountsPerOwnerAndKind(t *testing.T) {
	t.Parallel()
	th := throttle.New(throttle.Limits{Reads: slow(5), Sends: slow(4), Streams: slow(3), PushWrites: slow(2)}, nil)
	for _, tt := range []struct {
		op     a2a.Op
		n      int // how many operations are admitted
		bucket string
		policy string
	}{
		{&a2a.GetTask{}, 5, "reads", `"reads";q=5;w=500`},
		{&a2a.Subscribe{}, 3, "streams", `"streams";q=3;w=300`},
		{&a2a.DeletePushConfig{}, 2, "push-writes", `"push-writes";q=2;w=200`},
		{&a2a.CancelTask{}, 4, "sends", `"sends";q=4;w=400`},
	} {
		for i := range tt.n {
			if err := th.Admit(ann, tt.op); err != nil {
				t.Errorf("%s %d: %v", tt.bucket, i+1, err)
			}
		}
		err := th.Admit(ann, tt.op)
		var limited *throttle.Error
		if !errors.As(err, &limited) || a2a.CodeOf(err) != a2a.CodeRateLimited {
			t.Fatalf("%s: got %v, want a limit", tt.bucket, err)
		}
		h := http.Header{}
		limited.SetHeader(h)
		if got := h.Get("RateLimit-Policy"); got != tt.policy {
			t.Errorf("RateLimit-Policy is %s, want %s", got, tt.policy)
		}
		if err := th.Admit(bob, tt.op); err != nil {
			t.Errorf("%s of another owner: %v", tt.bucket, err)
		}
	}
}

func TestAdmitCountsNothingWhenItRefuses(t *testing.T) {
	t.Parallel()
	th := throttle.New(throttle.Limits{Sends: slow(3), Streams: slow(1)}, nil)
	stream := &a2a.SendMessage{Stream: true}
	if err := th.Admit(ann, stream); err != nil {
		t.Fatal(err)
	}
	if err := th.Admit(ann, stream); err == nil {
		t.Fatal("a second stream was admitted")
	}
	for range 2 { // the refused stream drew no send
		if err := th.Admit(ann, &a2a.SendMessage{}); err != nil {
			t.Error(err)
		}
	}
}

func TestAdmitLimitRecoversWithTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(throttle.Limits{Reads: throttle.Rate{PerSecond: 20, Burst: 1}}, nil)
		for range 3 {
			if err := th.Admit(ann, &a2a.ListTasks{}); err != nil {
				t.Fatal(err)
			}
			if err := th.Admit(ann, &a2a.ListTasks{}); err == nil {
				t.Fatal("a read above the limit was admitted")
			}
			time.Sleep(51 * time.Millisecond)
		}
	})
}

func TestAdmitDoesNotLimitWithoutAuthentication(t *testing.T) {
	t.Parallel()
	th := throttle.New(throttle.Limits{Reads: slow(1)}, nil)
	for range 5 {
		if err := th.Admit(auth.Principal{Method: auth.MethodNone}, &a2a.GetTask{}); err != nil {
			t.Error(err)
		}
	}
}
