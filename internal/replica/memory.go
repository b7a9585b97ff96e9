package replica

import (
	"context"
	"log/slog"
	"math"
	"os"
	"runtime"

	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/config"
)

const (
	leastBudget = 16 << 20

	// How many times its size the largest request and the largest task need. A smaller budget refuses some
	// that the limits allow.
	bodyShare = 8
	taskShare = 2

	// Attempts may hold this part of what one owner may use of the budget, in addition to the budget.
	heldShare = 4

	// Commands for each CPU, and the memory for each, unless A2AD_COMMANDS says how many there may be.
	commandsPerCPU = 4
	leastCommands  = 16
	commandMemory  = 64 << 20
)

// openBudget decides how much memory requests may use.
func openBudget(cfg *config.Config, log *slog.Logger) *budget.Budget {
	ctx := context.Background()
	machine := budget.Available(os.DirFS("/"))
	machine.HoldTo()
	total := int64(cfg.MemoryBudget)
	if total == 0 {
		total = max(machine.Default(), leastBudget)
	}
	for name, needs := range map[string]int64{
		"A2AD_MAX_BODY": bodyShare * int64(cfg.MaxBody), "A2AD_MAX_TASK": taskShare * int64(cfg.MaxTask),
	} {
		if needs > total {
			log.WarnContext(ctx, "the memory budget is too small for the largest requests, which are refused",
				"budget", total, "limit", name, "needs", needs)
		}
	}
	log.InfoContext(ctx, "memory", "budget", total, "available", machine.Bytes, "from", machine.From)
	return budget.New(budget.Config{Total: total})
}

// commandSlots returns how many commands may run at once.
func commandSlots(cfg *config.Config) int {
	if cfg.Commands > 0 {
		return cfg.Commands
	}
	fit := int(min(budget.Available(os.DirFS("/")).Bytes/commandMemory, math.MaxInt32))
	return max(1, min(fit, max(leastCommands, commandsPerCPU*runtime.GOMAXPROCS(0))))
}
