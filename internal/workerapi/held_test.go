package workerapi_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/tasks"
)

// renewals is a tracer that counts the statements that renew leases.
type renewals struct{ atomic.Int64 }

func (n *renewals) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "name: LeaseRenewRemote ") {
		n.Add(1)
	}
	return ctx
}

func (*renewals) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// wantRenewals checks how many leases were renewed since the last call.
func (n *renewals) want(t *testing.T, want int64, after string) {
	t.Helper()
	if got := n.Swap(0); got != want {
		t.Errorf("%d renewals after %s, want %d", got, after, want)
	}
}

func TestReportsUnderAFreshLeaseDoNotRenewIt(t *testing.T) {
	t.Parallel()
	n := &renewals{}
	f := newTracedFixture(t, n)
	r := f.claimed()
	const step = `{"step":{"key":"s","result":1}}`
	for i, body := range []string{
		events(working, artifact), events(working), `{"events":[],"checkpoint":{"n":1}}`, events(step), events(working),
	} {
		want(t, f.post(r.path+"events", body), 200, "")
		n.want(t, 0, fmt.Sprintf("report %d", i))
	}
	want(t, f.post(r.path+"events", `{"events":[]}`), 200, "")
	n.want(t, 1, "an empty report, which asks whether the lease is held")
	want(t, f.post(r.path+"events", events(step)), 200, "")
	n.want(t, 1, "a report of what is stored already")
	want(t, f.post(r.path+"events", events(`3`)), 400, "INVALID_AGENT_RESPONSE")
	n.want(t, 1, "an invalid report")
	want(t, f.post(r.path+"events", events(working)), 200, "")
	n.want(t, 1, "the report after an invalid one")
	want(t, f.post(r.path+"heartbeat", ""), 200, "")
	n.want(t, 1, "a heartbeat")
	want(t, f.post(r.path+"events", events(completed)), 200, "")
	n.want(t, 0, "the last report")
	want(t, f.post(r.path+"events", events(working)), 409, "LEASE_LOST")
	n.want(t, 1, "a report after the end")
	var left int
	if err := f.sql.QueryRow(t.Context(), "SELECT count(*)::int FROM a2a.task_checkpoints").Scan(&left); err != nil ||
		left != 0 {
		t.Errorf("%d checkpoints of an ended task, %v", left, err)
	}
}

// TestReportsOfOneRunToSeveralReplicas: a replica that remembers an older state of the run writes nothing under it.
func TestReportsOfOneRunToSeveralReplicas(t *testing.T) {
	t.Parallel()
	n := &renewals{}
	f := newTracedFixture(t, n)
	_, _, second := f.replica("r2")
	r := f.claimed()
	send := func(base, body string) reply {
		t.Helper()
		got := f.ask(base, "all", "POST", r.path+"events", body)
		want(t, got, 200, "")
		return got
	}
	// A batch that leaves no trace in the log: only its id tells that the first replica gets it again.
	const batch = `{"events":[],"checkpoint":{"n":1},"batchId":"b1"}`
	first := send(second, batch)
	n.want(t, 1, "a report to a replica that does not know the run")
	if again := send(f.at, batch); again.body != first.body {
		t.Errorf("the batch again: %s, was %s", again.body, first.body)
	}
	n.want(t, 1, "a batch that the other replica has written")
	var saved string
	if err := f.sql.QueryRow(t.Context(), "SELECT body::text FROM a2a.task_checkpoints").Scan(&saved); err != nil ||
		saved != `{"n":1}` {
		t.Errorf("checkpoint %s, %v", saved, err)
	}
	next := f.claimed()
	want(t, f.ask(second, "all", "POST", next.path+"events", `{"events":[],"checkpoint":{"n":2}}`), 200, "")
	want(t, f.post(next.path+"events", events(completed)), 200, "")
	for i := range 3 {
		send(f.at, events(working))
		send(second, events(working, artifact))
		if got := f.logLength(f.id(r)); got != 2+3*(i+1) {
			t.Errorf("the log has %d events after round %d, want %d", got, i, 2+3*(i+1))
		}
	}
	send(f.at, events(completed))
	if err := f.sql.QueryRow(t.Context(), "SELECT count(*)::text FROM a2a.task_checkpoints").Scan(&saved); err != nil ||
		saved != "0" {
		t.Errorf("%s checkpoints of an ended task, %v", saved, err)
	}
}

// TestReportOfARunThatAnotherWorkerHas: the epoch refuses what a replica writes under a lease that it remembers.
func TestReportOfARunThatAnotherWorkerHas(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	f.exec("UPDATE a2a.task_leases SET lease_until = clock_timestamp() - interval '1 second'")
	if n, err := f.Tasks.Rescue(t.Context(), nil, tasks.Policy{MaxAttempts: 3}, 10); n != 1 || err != nil {
		t.Fatalf("rescue = %d, %v", n, err)
	}
	before := f.logLength(f.id(r))
	want(t, f.post(r.path+"events", events(completed)), 409, "LEASE_LOST")
	next := f.claim("words", 1)[0]
	want(t, f.post(r.path+"events", events(completed)), 409, "LEASE_LOST")
	if got := f.logLength(f.id(r)); got != before+1 { // of the claim
		t.Errorf("the log has %d events, want %d", got, before+1)
	}
	want(t, f.post(next.path+"events", events(completed)), 200, "")
}

func TestReportWithOtherCredentialsUnderARememberedLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("other", "ann")
	r := f.claim("other", 1)[0]
	want(t, f.ask(f.at, "words", "POST", r.path+"events", events(completed)), 409, "LEASE_LOST")
	want(t, f.post(r.path+"events", events(completed)), 200, "")
}
