package demo

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"math"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// The history that is stored at first.
const (
	historyHours = 24
	mostPerHour  = 24 // of the busiest hour
	importBatch  = 100
)

// history stores tasks that have ended in the last day. The server has not worked on them: they are imported, and their
// ids have the times at which they seem to have been made.
func (d *day) history(ctx context.Context, now time.Time) error {
	var list []tasks.Import
	for hour := historyHours; hour > 0; hour-- {
		// A day has a quiet and a busy half.
		busy := 0.6 + 0.4*math.Sin(float64(hour)*2*math.Pi/historyHours)
		for range int(mostPerHour * busy) {
			ago := time.Duration(float64(time.Hour) * (float64(hour) - d.random.Float64()))
			list = append(list, d.past(now.Add(-ago)))
		}
	}
	for len(list) > 0 {
		n := min(len(list), importBatch)
		if _, err := d.cfg.Tasks.Import(ctx, "demo", list[:n]); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// past returns a task that has ended at a time.
func (d *day) past(at time.Time) tasks.Import {
	d.number++
	order := 4000 + d.random.IntN(1000)
	kinds := []struct {
		agent, asked, said string
		state              a2a.State
		weight             int
		again              string // what happens if the task is run again; empty: the agent asks for a script
	}{
		{"refunds", "Where is the refund of order #?", "The refund was paid.", a2a.StateCompleted, 30, ""},
		{"research", "Is A-# waterproof?", "Yes. See the page on care.", a2a.StateCompleted, 30, ""},
		{"translate", "Translate this letter into German.", "The letter is translated.", a2a.StateCompleted, 25, ""},
		{"refunds", "Refund order #: it never arrived.", gatewayDown, a2a.StateFailed, 6,
			`{"op":"fail","text":"` + gatewayDown + `"}`},
		{"research", "Which size does A-# have?", `no product has the number "A-#"`, a2a.StateFailed, 4,
			`{"op":"fail","text":"` + noProduct + `"}`},
		{"translate", "Translate this letter into Klingon.", "I do not know this language.", a2a.StateRejected, 2, ""},
		{"orders", "Plan the delivery of order #.", "", a2a.StateCanceled, 3, ""},
	}
	pick := d.random.IntN(100)
	i := 0
	for ; i < len(kinds)-1 && pick >= kinds[i].weight; i++ {
		pick -= kinds[i].weight
	}
	k := &kinds[i]
	id := db.IDAt(at)
	rand.Read(id[6:])
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	t := a2a.Task{
		ID: id, ContextID: fmt.Sprintf("order-%d", order), Status: a2a.Status{State: k.state, Time: at},
		History: []a2a.Message{request(k.asked, k.again, order)},
	}
	if k.said != "" {
		t.Status.Message = &a2a.Message{
			ID: db.NewUID().String(), Role: a2a.RoleAgent,
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: fill(k.said, order)}},
		}
	}
	return tasks.Import{
		Caller: callers[d.number%len(callers)], Agent: k.agent, Task: t, Digest: sha256.Sum256(id[:]),
	}
}
