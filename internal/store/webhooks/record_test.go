package webhooks_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// dueWebhooks submits n tasks, each with a webhook, and claims the webhooks in the order of the tasks.
func dueWebhooks(f *storetest.Fixture, n int) []webhooks.Delivery {
	f.T.Helper()
	var tasks []a2a.ID
	for range n {
		tasks = append(tasks, f.NewTaskWithWebhook("default"))
	}
	due := f.ClaimWebhooks(n)
	if len(due) != n {
		f.T.Fatalf("%d webhooks are due, want %d", len(due), n)
	}
	slices.SortFunc(due, func(a, b webhooks.Delivery) int {
		return slices.Index(tasks, a.Task) - slices.Index(tasks, b.Task)
	})
	return due
}

// delivered makes a delivery of each claimed webhook.
func delivered(due []webhooks.Delivery) []webhooks.Delivered {
	list := make([]webhooks.Delivered, len(due))
	for i := range due {
		list[i] = webhooks.Delivered{Delivery: &due[i], Try: &webhooks.Try{
			Status: 200 + i, Took: 5 * time.Millisecond, RemoteIP: "192.0.2.7", Answer: []byte("thanks"),
		}}
	}
	list[0].Try.RemoteIP, list[0].Try.Answer = "", nil
	return list
}

func recordAll(f *storetest.Fixture, list []webhooks.Delivered) []bool {
	f.T.Helper()
	recorded, err := f.Webhooks.RecordDeliveries(f.T.Context(), list)
	if err != nil {
		f.T.Fatal(err)
	}
	return recorded
}

// stored is what deliveries have changed in the database: the webhooks and the record of attempts.
func stored(f *storetest.Fixture, list []webhooks.Delivered) (rows []string) {
	f.T.Helper()
	for _, d := range list {
		rows = append(rows, storetest.Value[string](f, `SELECT concat_ws(' ', p.state, p.cursor_seq, p.head_seq,
			coalesce(p.target_seq::text, '-'), p.attempt, p.lease_epoch, coalesce(p.lease_until::text, '-'),
			coalesce(p.reason, '-'), p.next_attempt_at <= clock_timestamp(), '|', a.from_seq, a.seq, a.outcome,
			a.attempt, a.trigger, a.started_at < clock_timestamp() - interval '4 ms', a.duration_ms,
			coalesce(a.remote_ip, '-'), a.status, coalesce(a.class, '-'), coalesce(a.reason, '-'),
			coalesce(convert_from(a.answer, 'utf8'), '-'))
			FROM a2a.push_configs p JOIN a2a.push_attempts a ON a.push_id = p.id AND a.task_id = p.task_id
			WHERE p.id = $1`, d.Row))
	}
	return rows
}

// Deliveries that are recorded together leave what RecordDelivery leaves.
func TestDeliveriesAreRecordedTogetherAsAlone(t *testing.T) {
	t.Parallel()
	var rows [2][]string
	var woken [2]bool
	for i, together := range []bool{true, false} {
		f := storetest.Open(t)
		list := delivered(dueWebhooks(f, 4))
		// One more event.
		if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, list[1].Task); err != nil {
			t.Fatal(err)
		}
		list[2].Terminal = true
		list[3].Manual, list[3].Attempt = true, 2
		f.TakeWakes()
		if together {
			storetest.Same(t, "recorded", []bool{true, true, true, true}, recordAll(f, list))
		} else {
			for _, d := range list {
				if err := f.Webhooks.RecordDelivery(t.Context(), d.Delivery, d.Try, d.Terminal); err != nil {
					t.Fatal(err)
				}
			}
		}
		rows[i], woken[i] = stored(f, list), slices.Contains(f.TakeWakes(), wake.Webhooks)
		f.Invariants()
	}
	storetest.Same(t, "rows", rows[1], rows[0])
	if !woken[0] || !woken[1] {
		t.Errorf("woken %t, want deliverers to know of the next event", woken)
	}
	storetest.Same(t, "the first", "active 1 1 - 0 1 - - f | 0 1 delivered 1 auto t 5 - 200 - - -", rows[0][0])
}

// A group waits for nothing, and closes no breaker: its callers do that one by one.
func TestAGroupOfDeliveriesLeavesOutWhatItMayNotRecord(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	list := delivered(dueWebhooks(f, 4))
	locked, lost, again := list[0], list[1], list[2]
	f.Exec("UPDATE a2a.push_configs SET lease_epoch = lease_epoch + 1 WHERE id = $1", lost.Row)
	f.Exec("UPDATE a2a.push_configs SET target_seq = NULL WHERE id = $1", again.Row) // its client has set it again
	release := f.Lock(fmt.Sprintf("SELECT FROM a2a.push_configs WHERE id = '%s' FOR UPDATE", locked.Row))
	storetest.Same(t, "recorded", []bool{false, false, false, true}, recordAll(f, list))
	release()
	storetest.Same(t, "attempts", 1, storetest.Value[int](f, "SELECT count(*) FROM a2a.push_attempts"))
	storetest.Same(t, "twice", []bool{true, false, false, false}, recordAll(f, list))
}

func TestAGroupOfDeliveriesLeavesDestinationsThatFailed(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	due := dueWebhooks(f, 2)
	f.Failed(&due[0], webhooks.Failure{Delay: time.Hour, Breaker: &webhooks.Breaker{
		Fails: 5, FirstOpen: time.Hour, MaxOpen: time.Hour, DisableAfter: time.Hour,
	}})
	storetest.Same(t, "recorded", []bool{false}, recordAll(f, delivered(due[1:])))
	f.Delivered(&due[1], false)
	storetest.Same(t, "failures", 0, storetest.Value[int](f, "SELECT fails FROM a2a.push_destinations"))
}

// gateClaims makes a claim stop after its statement has its snapshot and before it locks a webhook, until release is
// called: it reads the destination meanwhile.
func gateClaims(f *storetest.Fixture) (release func()) {
	f.T.Helper()
	f.Exec("INSERT INTO a2a.push_destinations (tenant, origin) SELECT tenant, origin FROM a2a.push_configs")
	f.Exec(`CREATE FUNCTION a2a.test_gate() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
		IF current_query() LIKE '-- name: PushClaim %' THEN PERFORM pg_advisory_xact_lock(71, 1); END IF;
		RETURN true; END $$`)
	f.Exec("GRANT EXECUTE ON FUNCTION a2a.test_gate() TO a2a_worker")
	f.Exec("ALTER TABLE a2a.push_destinations RENAME TO test_destinations")
	f.Exec("CREATE VIEW a2a.push_destinations AS SELECT * FROM a2a.test_destinations WHERE a2a.test_gate()")
	f.Exec("GRANT ALL ON a2a.push_destinations TO a2a_worker")
	return f.Lock("SELECT pg_advisory_xact_lock(71, 1)")
}

// A claim may see fewer events than the head of the row that it locks. It must not skip a state that ends a turn.
func TestAClaimSkipsNoStateThatItDidNotSee(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change string
		want   int64
	}{
		"some of the events": {"", 1},
		// Another replica has delivered what this claim sees.
		"none of the events": {"cursor_seq = 1", 3},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			task := f.NewTaskWithWebhook("default")
			release := gateClaims(f)
			var due []webhooks.Delivery
			var err error
			var wg sync.WaitGroup
			wg.Go(func() { due, err = f.Webhooks.Claim(t.Context(), 10, 8, time.Minute) })
			f.WaitBlocked(1)
			l := f.ClaimTask(task)
			f.Append(l, storetest.Status(a2a.StateInputRequired, "?"))
			f.Say(task, "answer")
			if c.change != "" {
				f.Exec("UPDATE a2a.push_configs SET " + c.change)
			}
			release()
			wg.Wait()
			if err != nil || len(due) != 1 {
				t.Fatalf("%d webhooks, %v", len(due), err)
			}
			storetest.Same(t, "the event", c.want, due[0].Seq)
			if p := f.Progress(task, "default"); p.Head < 4 {
				t.Errorf("void: the head is at %d", p.Head)
			}
			f.Delivered(&due[0], false)
			if c.want < 3 {
				storetest.Same(t, "the next event", int64(3), f.DueWebhook().Seq)
			}
		})
	}
}

// Each destination has a limit of its own.
func TestClaimsWithinLimitsOfEachDestination(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for i := range 12 {
		in, webhook := storetest.Submission(fmt.Sprintf("hello %d", i)), storetest.NewWebhook("default")
		if i%2 == 0 {
			webhook.Origin = "https://slow.example:443"
		}
		in.Push = &webhook
		f.Submit(in)
	}
	limits := map[string]int{storetest.WebhookOrigin: 5, "https://slow.example:443": 2}
	claimed := map[string]int{}
	for range 3 {
		room := func(origin string) int { return limits[origin] }
		due, err := f.Webhooks.ClaimWithin(t.Context(), 100, room, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range due {
			claimed[d.Origin]++
		}
	}
	storetest.Same(t, "claimed", limits, claimed)
}
