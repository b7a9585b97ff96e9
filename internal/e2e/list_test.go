package e2e_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// fanOut calls f with 0 to n-1 from several goroutines.
func fanOut(n int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range 16 {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// Half of the listed tasks change their position all the time.
func TestListWalkUnderWrites(t *testing.T) {
	t.Parallel()
	const still, moving, size = 500, 500, 40
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	ctx := bounded(t)
	asks := strings.TrimSuffix(strings.Repeat(`{"op":"input"},`, 20), ",")
	tasks := make([]string, still+moving)
	fanOut(len(tasks), func(i int) {
		m := play(asks)
		m.ContextID = []string{"still", "moving"}[i%2]
		got, err := c.client([]*replica{a, b}[i/2%2], "script").Send(ctx, client.SendParams{Message: m, NoWait: true})
		if err != nil {
			t.Errorf("send: %v", err)
			return
		}
		tasks[i] = got.TaskID
	})
	c.awaitRest()

	stop, stopped := make(chan struct{}), make(chan struct{})
	moves := 0
	go func() {
		defer close(stopped)
		for i := 1; ; i = (i + 2) % len(tasks) {
			select {
			case <-stop:
				return
			default:
			}
			m := reply(tasks[i], "on")
			if _, err := c.client(a, "script").Send(ctx, client.SendParams{Message: m, NoWait: true}); err != nil {
				t.Errorf("move a task: %v", err)
				return
			}
			moves++
		}
	}()

	seen := make(map[string]int)
	last, token := "9", ""
	for pages := 0; ; pages++ {
		at := []*replica{a, b}[pages%2]
		page, err := c.client(at, "script").List(ctx, client.ListParams{PageSize: size, PageToken: token})
		if err != nil {
			t.Fatalf("page %d: %v", pages, err)
		}
		if page.Total != still+moving {
			t.Errorf("page %d says there are %d tasks, want %d", pages, page.Total, still+moving)
		}
		for _, task := range page.Tasks {
			if task.ContextID == "still" {
				seen[task.TaskID]++
			}
			// A task that moves between the choice of the page and the read of its tasks is newer than its position.
			if task.ContextID == "still" && task.Timestamp > last {
				t.Errorf("page %d: %s of %s after one of %s", pages, task.TaskID, task.Timestamp, last)
			}
			if task.ContextID == "still" {
				last = task.Timestamp
			}
		}
		if token = page.NextToken; token == "" {
			break
		}
		if len(page.Tasks) != size {
			t.Errorf("page %d has %d tasks and is not the last, want %d", pages, len(page.Tasks), size)
		}
	}
	close(stop)
	<-stopped
	if moves == 0 {
		t.Fatal("nothing moved")
	}
	t.Logf("%d moves during the walk", moves)
	for i := 0; i < len(tasks); i += 2 {
		if seen[tasks[i]] != 1 {
			t.Errorf("task %s was listed %d times, want once", tasks[i], seen[tasks[i]])
		}
	}
	c.awaitRest()
	c.checkFilters(a, still, moving)
}

// checkFilters lists with filters, and with tokens of other lists.
func (c *cluster) checkFilters(at *replica, still, moving int) {
	c.t.Helper()
	ctx := bounded(c.t)
	cl := c.client(at, "script")
	for _, tc := range []struct {
		p    client.ListParams
		want int
	}{
		{client.ListParams{ContextID: "still"}, still},
		{client.ListParams{ContextID: "moving", PageSize: 1}, moving},
		{client.ListParams{State: a2a.StateInputRequired}, still + moving},
		{client.ListParams{State: a2a.StateCompleted}, 0},
		{client.ListParams{ContextID: "nowhere"}, 0},
	} {
		page, err := cl.List(ctx, tc.p)
		if err != nil || page.Total != tc.want {
			c.t.Errorf("list %+v: %d tasks, %v, want %d", tc.p, page.Total, err, tc.want)
		}
	}
	first, err := cl.List(ctx, client.ListParams{ContextID: "still", PageSize: 10})
	if err != nil || first.NextToken == "" {
		c.t.Fatalf("no token: %v", err)
	}
	good := first.NextToken
	for i, tc := range []struct {
		cl *client.Client
		p  client.ListParams
	}{
		{cl, client.ListParams{ContextID: "moving", PageToken: good}},
		{cl, client.ListParams{PageToken: good}},
		{cl, client.ListParams{ContextID: "still", State: a2a.StateInputRequired, PageToken: good}},
		{c.client(at, "echo"), client.ListParams{ContextID: "still", PageToken: good}},
		{cl, client.ListParams{ContextID: "still", PageToken: good[:len(good)-1]}},
		{cl, client.ListParams{ContextID: "still", PageToken: flip(good, len(good)/2)}},
		{cl, client.ListParams{ContextID: "still", PageToken: good + "A"}},
		{cl, client.ListParams{ContextID: "still", PageToken: "MTIz"}},
		{cl, client.ListParams{ContextID: "still", PageToken: "\x00' OR 1=1 --"}},
		{cl, client.ListParams{ContextID: "still", PageToken: strings.Repeat("A", 2000)}},
	} {
		if page, err := tc.cl.List(ctx, tc.p); !refused(err, -32602) {
			c.t.Errorf("token %d: %d tasks, %v, want -32602", i, len(page.Tasks), err)
		}
	}
	for _, bad := range []string{`{"pageSize":0}`, `{"pageSize":101}`, `{"pageSize":-1}`, `{"pageSize":"ten"}`,
		`{"pageSize":1.5}`} {
		got := c.post(at, "/agents/script", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":%s}`,
			bad))
		if got.code != -32602 {
			c.t.Errorf("%s: %s, want -32602", bad, got.body)
		}
	}
}

// flip changes one character of a token.
func flip(token string, i int) string {
	other := "A"
	if token[i] == 'A' {
		other = "B"
	}
	return token[:i] + other + token[i+1:]
}
