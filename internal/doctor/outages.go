package doctor

import (
	"context"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// outages reports the agents that the servers cannot reach.
func (d *Doctor) outages(ctx context.Context, s *store.Store) {
	list, err := s.Tasks.Outages(ctx)
	if err != nil {
		d.Findings.warn("unreachable", "", "it could not be read which agents are unreachable: %s", err)
		return
	}
	checkOutages(list, &d.Findings)
}

func checkOutages(list []operate.Outage, f *Findings) {
	before := len(*f)
	for _, o := range list {
		f.warn("unreachable", "Start the agent, or check its address in the agent file. Its tasks wait meanwhile.",
			"the agent %s has been unreachable since %s: %s", o.Agent, o.Since.Format(time.RFC3339), o.Reason)
	}
	f.okUnless(before, "unreachable", "no server reports an unreachable agent")
}

// stops notes the agents that are paused and the workers that are drained: somebody may have forgotten them.
func (d *Doctor) stops(ctx context.Context, s *store.Store) {
	list, err := s.Tasks.Stops(ctx)
	if err != nil {
		d.Findings.warn("stopped", "", "it could not be read what operators have stopped: %s", err)
		return
	}
	checkStops(list, &d.Findings)
}

func checkStops(list []tasks.Stop, f *Findings) {
	for _, s := range list {
		done := "paused"
		if s.Kind == tasks.StopWorker {
			done = "drained"
		}
		why := ""
		if s.Reason != "" {
			why = ": " + s.Reason
		}
		f.note("stopped", "a2ad "+string(s.Kind)+" resume "+s.Name,
			"the %s %s has been %s since %s by %s%s", s.Kind, s.Name, done, s.Since.Format(time.RFC3339), s.Actor, why)
	}
}
