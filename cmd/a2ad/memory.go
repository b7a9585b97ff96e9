package main

import (
	"context"
	"os"

	"github.com/a2ad/a2ad/internal/budget"
)

// bodyShare and taskShare are how much of the budget the largest request and the largest task take:
// a smaller budget refuses some that the limits permit.
const (
	bodyShare = 8
	taskShare = 2
)

// openBudget decides how much memory requests may use.
func (r *replica) openBudget() {
	machine := budget.Available(os.DirFS("/"))
	machine.HoldTo()
	total := int64(r.cfg.MemoryBudget)
	if total == 0 {
		total = max(machine.Default(), 16<<20)
	}
	r.budget = budget.New(budget.Config{Total: total})
	for _, l := range []struct {
		name string
		most int64
	}{{"A2AD_MAX_BODY", bodyShare * int64(r.cfg.MaxBody)}, {"A2AD_MAX_TASK", taskShare * int64(r.cfg.MaxTask)}} {
		if l.most > total {
			r.logger.WarnContext(context.Background(), "the memory budget is too small for the largest requests, which are refused", "budget", total, "limit", l.name, "needs", l.most)
		}
	}
	r.logger.InfoContext(context.Background(), "memory", "budget", total, "available", machine.Bytes, "from", machine.From)
}
