package check

import (
	"context"
	_ "embed" // the query
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

//go:embed eventids.sql
var eventIDs string

// Shown returns what streams showed and the log of the database does not hold under the
// same number and uid.
func Shown(ctx context.Context, db Querier, streams []Stream) ([]Violation, error) {
	shown := make(map[string]map[string]bool) // ids by task
	for i := range streams {
		for _, f := range streams[i].Frames {
			var o struct{ ID, TaskID string }
			_ = json.Unmarshal(f.Result, &o) // Clients names what cannot be read
			task := o.TaskID + o.ID          // one of the two
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
	var found faults
	for _, task := range slices.Sorted(maps.Keys(shown)) {
		for _, id := range slices.Sorted(maps.Keys(shown[task])) {
			found.add(InLog, task, "event %s", id)
		}
	}
	return found, nil
}
