package operate

import (
	"context"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
)

// WaitingCount counts the tasks of an agent that wait without a worker.
type WaitingCount struct {
	Agent string
	Tasks int64
	Next  time.Time // when the first of them continues or fails; zero: only an event ends the waits
}

func countWaiting(ctx context.Context, q *dbsqlc.Queries) ([]WaitingCount, error) {
	rows, err := q.CountWaiting(ctx)
	list := make([]WaitingCount, len(rows))
	for i, r := range rows {
		list[i] = WaitingCount{r.Agent, r.Tasks, db.TimeOrZero(r.NextAt)}
	}
	return list, err
}
