package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
)

// LaneDepth counts the tasks in a lane of a queue.
type LaneDepth struct {
	Agent   string
	Lane    int // 0 is claimed from first
	Waiting int64
	Due     int64         // of these, those that wait for nothing else
	Oldest  time.Duration // since the one that is due longest; negative: none is due yet
}

// Lanes counts the tasks in all lanes that have some, by agent and lane.
func (s *Store) Lanes(ctx context.Context) (list []LaneDepth, err error) {
	err = s.db.Browse(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) error {
		rows, err := dbsqlc.New(tx).CountLanes(ctx)
		for _, r := range rows {
			list = append(list, LaneDepth{
				Agent: r.Queue, Lane: int(r.Lane), Waiting: r.Waiting, Due: r.Due,
				Oldest: time.Duration(r.OldestMs) * time.Millisecond,
			})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read lanes: %w", db.Unavailable(err))
	}
	return list, nil
}
