package check

import (
	"context"
	_ "embed" // the query
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
)

//go:embed eventids.sql
var eventIDs string

//go:embed retired.sql
var retired string

// Shown returns the events that streams showed and that the log lacks under the same number and uid. It skips events
// that retention has removed and recorded.
func Shown(ctx context.Context, db Querier, streams []Stream) ([]Violation, error) {
	shown := make(map[string]map[string]bool) // ids by task
	for i := range streams {
		for _, f := range streams[i].Frames {
			var o struct{ ID, TaskID string }
			_ = json.Unmarshal(f.Result, &o) // Clients reports what cannot be parsed
			task := o.TaskID + o.ID          // exactly one of them is set
			if shown[task] == nil {
				shown[task] = make(map[string]bool)
			}
			shown[task][f.ID] = true
		}
	}
	rows, err := db.Query(ctx, eventIDs, slices.Collect(maps.Keys(shown)))
	if err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	for rows.Next() {
		var task, id string
		if err := rows.Scan(&task, &id); err != nil {
			return nil, fmt.Errorf("read the log: %w", err)
		}
		delete(shown[task], id)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	begins, err := firstSeqs(ctx, db, slices.Collect(maps.Keys(shown)))
	if err != nil {
		return nil, fmt.Errorf("read what was retired: %w", err)
	}
	var found faults
	for _, task := range slices.Sorted(maps.Keys(shown)) {
		begin, cut := begins[task]
		maps.DeleteFunc(shown[task], func(id string, _ bool) bool {
			seq, _ := parseID(id)
			return cut && seq > 0 && seq < begin
		})
		for _, id := range slices.Sorted(maps.Keys(shown[task])) {
			found.add(InLog, task, "event %s", id)
		}
	}
	return found, nil
}

// firstSeqs returns the start of each log that retention has shortened or removed.
func firstSeqs(ctx context.Context, db Querier, tasks []string) (map[string]int64, error) {
	rows, err := db.Query(ctx, retired, tasks)
	if err != nil {
		return nil, err
	}
	begins := make(map[string]int64)
	for rows.Next() {
		var task string
		var first *int64
		if err := rows.Scan(&task, &first); err != nil {
			return nil, err
		}
		begins[task] = math.MaxInt64
		if first != nil {
			begins[task] = *first
		}
	}
	return begins, rows.Err()
}
