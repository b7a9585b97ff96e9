package operate

import (
	"context"
	"time"

	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
)

// ParkedCount counts the parked tasks of an agent.
type ParkedCount struct {
	Agent  string
	Tasks  int64
	Oldest time.Duration // for which the first of them has been parked
}

func countParked(ctx context.Context, q *dbsqlc.Queries) ([]ParkedCount, error) {
	rows, err := q.CountParked(ctx)
	list := make([]ParkedCount, len(rows))
	for i, r := range rows {
		list[i] = ParkedCount{r.Agent, r.Tasks, max(time.Duration(r.OldestMs)*time.Millisecond, 0)}
	}
	return list, err
}
