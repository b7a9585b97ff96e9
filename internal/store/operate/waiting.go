package operate

import (
	"context"
	"math"
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

// How much of the table of waits is read. For metrics it is 4 MB, some 37,000 waits, which takes about 50 ms. If there
// are more, the count is an estimate.
const (
	waitingPages    = 512
	allWaitingPages = math.MaxInt32
)

// countWaiting reads at most the given number of pages of the table. Of an estimate, Next is that of the waits that
// were read.
func countWaiting(ctx context.Context, q *dbsqlc.Queries, pages int64) ([]WaitingCount, error) {
	rows, err := q.CountWaiting(ctx, pages)
	list := make([]WaitingCount, len(rows))
	for i, r := range rows {
		list[i] = WaitingCount{r.Agent, r.Tasks, db.TimeOrZero(r.NextAt)}
	}
	return list, err
}
