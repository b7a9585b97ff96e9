package rpc_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/e2e/attack"
	"github.com/a2ad/a2ad/internal/rpc"
)

// TestGRPCUnreadAnswersReturnTheirMemory: an answer that the client does not read uses its owner's
// share until the write timeout, even if the connection stays open. The same is true for an item of
// a stream.
func TestGRPCUnreadAnswersReturnTheirMemory(t *testing.T) {
	t.Parallel()
	b := budget.New(budget.Config{Total: 64 << 20})
	_, conn, _ := openGRPC(t, func(c *rpc.Config) {
		c.Budget, c.WriteTimeout, c.SSEWriteTimeout = b, 5*time.Second, 5*time.Second
	})
	c, d := caller{t, conn, service1}, grpcDialects[1]
	made := object(t, c.call("SendMessage",
		d.send("", `{"op":"chunk","id":"a","n":10,"bytes":20000},{"op":"input"}`, true))["task"])
	if state(t, made) != inputRequired {
		t.Fatalf("made: %v", made["status"])
	}
	for _, method := range []string{"GetTask", "SubscribeToTask"} {
		target, seen := &attack.Target{}, &attack.Statuses{}
		stop := target.Calls(conn.Target(), 1, 4, seen).Unread(method, target.TaskMessage(id(made)))
		eventually(t, "answers have begun", func() bool { return seen.All()[int(codes.OK)] > 0 })
		eventually(t, method+" that no client reads returned its memory", func() bool { return b.Stats().Used == 0 })
		c.call("ListTasks", `{}`)
		stop()
	}
}

// TestGRPCStalledRequestsDrawMemory: the received part of a stalled request draws memory, can be evicted,
// and gives its memory back.
func TestGRPCStalledRequestsDrawMemory(t *testing.T) {
	t.Parallel()
	b := budget.New(budget.Config{Total: budget.Least, Stall: 50 * time.Millisecond})
	_, conn, _ := openGRPC(t, func(c *rpc.Config) { c.Budget, c.MaxBody = b, 256<<10 })
	target, seen := &attack.Target{}, &attack.Statuses{}
	attackers := target.Calls(conn.Target(), 2, 40, seen)
	stop := attackers.Stalled("SendMessage", 256<<10, 256<<10-1)
	eventually(t, "bodies have drawn memory", func() bool { return b.Stats().Arriving > 0 })
	eventually(t, "bodies make room", func() bool { return seen.All()[int(codes.Unavailable)] > 0 })
	c, d := caller{t, conn, service1}, grpcDialects[1]
	eventually(t, "a call is answered", func() bool {
		_, _, st := c.try("SendMessage", d.send("", `{"op":"complete"}`, true))
		return st.Code() == codes.OK
	})
	stop()
	eventually(t, "all memory is returned", func() bool { return b.Stats().Used == 0 })
	for code := range seen.All() {
		if code != int(codes.Unavailable) && code != int(codes.ResourceExhausted) && code != attack.NoStatus {
			t.Errorf("answered with %v", codes.Code(code))
		}
	}
}
