package doctor

import (
	"context"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/operate"
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
