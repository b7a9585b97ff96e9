package store_test

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// modelUsage is usage by model.
type modelUsage map[string]a2a.Usage

func (u modelUsage) add(r a2a.Usage) {
	before := u[r.Model]
	before.Model = r.Model
	u[r.Model] = a2a.SumUsage([]a2a.Usage{before, r})[0]
}

// usage draws reports of a run.
func (m *machine) usage(t *rapid.T) []a2a.Usage {
	number := func(what string) int64 { return rapid.Int64Range(0, 9).Draw(t, what) }
	reports := make([]a2a.Usage, rapid.IntRange(1, 3).Draw(t, "reports"))
	for i := range reports {
		reports[i] = a2a.Usage{
			Model: rapid.SampledFrom([]string{"", "m1", "m2"}).Draw(t, "model"), Input: number("input"),
			Output: number("output"), Cached: number("cached"), Reasoning: number("reasoning"),
			Requests: number("requests"),
		}
	}
	return reports
}

// use reports usage, alone or with events.
func (m *machine) use(t *rapid.T) {
	x := m.pick(t, held)
	b := tasks.Batch{Usage: m.usage(t)}
	if rapid.Bool().Draw(t, "events too") {
		b.Events = m.events(t)
	}
	if _, err := m.Tasks.Append(m.T.Context(), x.lease, b); err != nil {
		t.Fatal(err)
	}
	for _, e := range b.Events {
		x.event(e)
	}
	if x.used == nil {
		x.used = make(modelUsage)
	}
	for _, u := range b.Usage {
		x.used.add(u)
	}
}

// sumUsage moves some reports into the sums by day, which changes nothing that anyone sees.
func (m *machine) sumUsage(t *rapid.T) {
	if _, err := m.Tasks.SumUsage(m.T.Context(), rapid.IntRange(1, 3).Draw(t, "reports")); err != nil {
		t.Fatal(err)
	}
}

// checkUsage compares the usage of each task, and the sums by day of each agent.
func (m *machine) checkUsage(t *rapid.T) {
	sums := make(map[string]modelUsage)
	for i, x := range m.tasks {
		if sums[x.agent] == nil {
			sums[x.agent] = make(modelUsage)
		}
		for _, u := range x.used {
			sums[x.agent].add(u)
		}
		const ofTask = "audit.usage WHERE task_id = $1"
		storetest.Same(t, fmt.Sprint("usage of task ", i), x.used, m.readUsage(t, ofTask, x.id))
	}
	for agent, want := range sums {
		storetest.Same(t, "usage of "+agent, want, m.readUsage(t, "audit.usage_day WHERE agent = $1", agent))
	}
}

// readUsage reads usage by model; the sums of two days are added.
func (m *machine) readUsage(t *rapid.T, from string, arg any) modelUsage {
	rows, err := m.SQL.Query(m.T.Context(), `SELECT model, input_tokens, output_tokens, cached_input_tokens,
		reasoning_tokens, requests FROM `+from, arg)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	used := make(modelUsage)
	for rows.Next() {
		var u a2a.Usage
		if err := rows.Scan(&u.Model, &u.Input, &u.Output, &u.Cached, &u.Reasoning, &u.Requests); err != nil {
			t.Fatal(err)
		}
		used.add(u)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return used
}
