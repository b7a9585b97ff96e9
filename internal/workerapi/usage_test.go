package workerapi_test

import "testing"

// usage returns the usage of a run's task as one text.
func (f *fixture) usage(r run) string {
	f.t.Helper()
	var got string
	const sums = `SELECT coalesce(string_agg(concat_ws(' ', model, input_tokens, output_tokens, cached_input_tokens,
		reasoning_tokens, requests), ', ' ORDER BY model), '') FROM audit.usage WHERE task_id = $1`
	if err := f.sql.QueryRow(f.t.Context(), sums, r.TaskID).Scan(&got); err != nil {
		f.t.Fatal(err)
	}
	return got
}

func TestWorkerReportsUsage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	const used = `{"usage":{"model":"m","inputTokens":12,"outputTokens":34,"cachedInputTokens":5,` +
		`"reasoningTokens":3,"requests":1}}`
	for _, body := range []string{
		events(used), events(used, working), events(`{"step":{"key":"a","result":1}}`, used, used),
	} {
		want(t, f.post(r.path+"events", body), 200, "")
	}
	if got := f.usage(r); got != "m 48 136 20 12 4" {
		t.Errorf("recorded %s, want m 48 136 20 12 4", got)
	}
	refused := f.post(r.path+"events", events(working, `{"usage":{"inputTokens":-1}}`))
	want(t, refused, 400, "INVALID_AGENT_RESPONSE")
	afterTheEnd := f.post(r.path+"events", events(completed, used))
	want(t, afterTheEnd, 400, "INVALID_AGENT_RESPONSE")
	want(t, f.post(r.path+"events", events(used, completed)), 200, "")
	want(t, f.post(r.path+"events", events(used)), 409, "LEASE_LOST")
	if got := f.usage(r); got != "m 60 170 25 15 5" {
		t.Errorf("recorded %s, want m 60 170 25 15 5", got)
	}
}

// A batch that is sent again, because its answer was lost, counts once. So does one that has nothing but usage.
func TestRepeatedUsageCountsOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	for _, body := range []string{
		`{"events":[{"usage":{"model":"m","requests":1}}],"batchId":"b1"}`,
		`{"events":[{"usage":{"model":"m","requests":1}},` + working + `],"batchId":"b2"}`,
		`{"events":[{"usage":{"model":"m","requests":1}},` + completed + `],"batchId":"b3"}`,
	} {
		want(t, f.post(r.path+"events", body), 200, "")
		want(t, f.post(r.path+"events", body), 200, "")
	}
	if got := f.usage(r); got != "m 0 0 0 0 3" {
		t.Errorf("recorded %s, want m 0 0 0 0 3", got)
	}
}
