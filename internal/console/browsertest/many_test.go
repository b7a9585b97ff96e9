package browsertest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
)

const manyTasks = 100_000

// fill stores tasks that ended long ago, every hundredth with a failure. Their ids and contexts have their numbers.
const fill = `
	INSERT INTO a2a.tasks (id, tenant, owner, agent, context_id, state, status_at, last_seq, last_at, last_message_seq,
	  last_user_seq, read_user_seq, created_at)
	SELECT ('01800000-' || lpad(to_hex(i / 65536), 4, '0') || '-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid,
	  'acme', CASE i %% 3 WHEN 0 THEN 'ann' ELSE 'shop' END, 'script', 'order-' || i,
	  CASE i %% 100 WHEN 0 THEN 101 ELSE 100 END, at, 1, at, 0, 0, 0, at
	FROM (SELECT i, now() - interval '1 hour' - (%d - i) * interval '1 second' AS at FROM generate_series(1, %[1]d) i) n;
	ANALYZE a2a.tasks;`

// full starts a server with a great many tasks.
func full(t *testing.T) (server string) {
	t.Helper()
	dir := t.TempDir()
	server, stop, err := start(os.Getenv("A2AD_BIN"), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	query(t, dir, fmt.Sprintf(fill, manyTasks))
	return server
}

// rowIDs returns the ids of the rows of the page.
func rowIDs(t *testing.T, ctx context.Context) []string {
	t.Helper()
	return eval[[]string](t, ctx, `[...document.querySelectorAll('#list tr[id]')].map((tr) => tr.id)`)
}

func TestListOfManyTasks(t *testing.T) {
	server := full(t)
	ctx := open(t)
	id := func(i int) string { return fmt.Sprintf("t-01800000-%04x-7000-8000-%012x", i/65536, i) }
	for query, want := range map[string][2]int{ // the first and the second row
		"":                      {manyTasks, manyTasks - 1},
		"?state=failed":         {manyTasks, manyTasks - 100},
		"?owner=ann":            {manyTasks - 1, manyTasks - 4},
		"?q=01800000-0000-7000": {65535, 65534},
	} {
		do(t, ctx, chromedp.Navigate(server+"/console/tasks"+query), chromedp.WaitVisible(`#list [data-row]`))
		rows := rowIDs(t, ctx)
		if len(rows) != 50 || rows[0] != id(want[0]) || rows[1] != id(want[1]) {
			t.Errorf("%q shows %d tasks that begin with %.2q, want %d", query, len(rows), rows, want)
		}
		took := eval[float64](t, ctx, `performance.getEntriesByType('navigation')[0].responseEnd`)
		t.Logf("%q took %.0f ms", query, took)
	}
	// Each page continues where the one before has ended, and the way back is short.
	do(t, ctx, chromedp.Navigate(server+"/console/tasks?state=failed"), chromedp.WaitVisible(`#list [data-row]`))
	for page := range 4 {
		rows := rowIDs(t, ctx)
		if first := id(manyTasks - page*50*100); len(rows) != 50 || rows[0] != first {
			t.Fatalf("page %d begins with %s, want %s", page, rows[0], first)
		}
		do(t, ctx, chromedp.Click(`a[rel=next]`), chromedp.WaitNotPresent(`[id="`+rows[0]+`"]`, chromedp.ByQuery),
			chromedp.WaitVisible(`#list [data-row]`))
	}
	do(t, ctx, chromedp.Click(`.pager a`), chromedp.WaitVisible(`[id="`+id(manyTasks)+`"]`, chromedp.ByQuery))
}

// A list does not move under the pointer: rows that are there change in place, and new ones are offered.
func TestRowUnderThePointerStays(t *testing.T) {
	server := full(t)
	hangs, err := submitTo(server, op{"op": "status", "text": "thinking"}, op{"op": "hang"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := open(t)
	do(t, ctx, chromedp.Navigate(server+"/console/tasks"),
		chromedp.WaitVisible(`#t-`+hangs+` .s-working`, chromedp.ByQuery))
	rows := rowIDs(t, ctx)
	under := rows[7]
	place := `(() => { const r = document.getElementById('` + under + `').getBoundingClientRect();
		return [r.top, r.height].join() })()`
	before := eval[string](t, ctx, place)
	do(t, ctx, hover(`[id="`+under+`"] td:nth-child(3)`))
	if !eval[bool](t, ctx, `document.getElementById('`+under+`').matches(':hover')`) {
		t.Fatal("the pointer is not on the row")
	}
	for range 3 {
		if _, err := submitTo(server, op{"op": "complete"}); err != nil {
			t.Fatal(err)
		}
	}
	cancel(t, server, hangs)
	do(t, ctx, chromedp.WaitVisible(`#t-`+hangs+` .s-canceled`, chromedp.ByQuery)) // in place
	do(t, ctx, chromedp.WaitVisible(`[data-fresh] button`))
	if after := eval[string](t, ctx, place); after != before {
		t.Errorf("the row under the pointer moved from %s to %s", before, after)
	}
	if now := rowIDs(t, ctx); now[0] != rows[0] || now[7] != under {
		t.Errorf("rows were added under the pointer: %.9q, want %.9q", now, rows)
	}
	do(t, ctx, chromedp.Click(`[data-fresh] button`))
	until(t, ctx, `document.querySelector('#list tr[id]').id !== '`+rows[0]+`'`)
}
