package e2e_test

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestStreamResumesAcrossReplicas(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	start, middle := newGate(t), newGate(t)
	ops := start.op() + `,{"op":"chunk","id":"x","n":10},` + middle.op() +
		`,{"op":"chunk","id":"y","n":10},{"op":"complete","text":"done"}`
	task := submit(t, c.client(a, "script"), play(ops))

	reader := c.roamer("script", func(n int) *replica { return []*replica{b, a}[min(n, 1)] })
	ctx := bounded(t)
	seen := follow(t, reader.Resubscribe(ctx, task, client.StreamOptions{}), func(ev client.Event) bool {
		start.open()
		return atChunk("x", 5)(ev)
	})
	last := seen[len(seen)-1]
	middle.open()
	rest := follow(t, reader.Resubscribe(ctx, task, client.StreamOptions{LastEventID: last.ID}), nil)
	if rest[0].Seq != last.Seq+1 || rest[0].Gap {
		t.Errorf("resumed after seq %d with %s seq %d (gap %t), want the next event", last.Seq, rest[0].Kind,
			rest[0].Seq, rest[0].Gap)
	}
	end := rest[len(rest)-1]
	if end.State != a2a.StateCompleted || !end.Final {
		t.Errorf("the stream ends with %s, final %t", end.State, end.Final)
	}
	all := append(seen, rest...)
	for id, n := range map[string]int{"x": 10, "y": 10} {
		if diff := cmp.Diff(chunkTexts(id, n), chunks(all, id)); diff != "" {
			t.Errorf("chunks of %s (-want +got):\n%s", id, diff)
		}
	}
	c.checkScript(a, "script", task, 5, "["+ops+"]")
}

func TestBlockingSendIsAnsweredByTheOtherReplicasWorker(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a", "A2AD_WORKERS=0"), c.start("b")
	got, err := c.client(a, "echo").Send(bounded(t), client.SendParams{Message: say("over there")})
	if err != nil {
		t.Fatal(err)
	}
	if got.State != a2a.StateCompleted || len(got.Artifacts) != 1 ||
		client.Text(got.Artifacts[0].Parts) != "over there" {
		t.Errorf("got %s", got.Raw)
	}
	if diff := cmp.Diff([]string{b.name + " completed"}, c.attempts(got.TaskID)); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}
