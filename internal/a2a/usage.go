package a2a

// MaxUsage bounds each number of one report, so that no sum of reports overflows.
const MaxUsage = 1_000_000_000

// Usage is what a run has used of a model since it reported usage last. It is recorded in one transaction with the
// other events of its batch, and added to the sums of the task and of the day.
type Usage struct {
	Model     string // as the agent names it; empty: it names none
	Input     int64  // tokens
	Output    int64  // tokens
	Cached    int64  // of Input: tokens that came from a cache
	Reasoning int64  // of Output: tokens that the client does not see
	Requests  int64  // to the model
}

// Size is roughly how many bytes are stored of a report.
func (u *Usage) Size() int { return 64 + len(u.Model) }

func (u *Usage) add(o *Usage) {
	u.Input, u.Output = u.Input+o.Input, u.Output+o.Output
	u.Cached, u.Reasoning = u.Cached+o.Cached, u.Reasoning+o.Reasoning
	u.Requests += o.Requests
}

// SumUsage returns one usage for each model, in the order in which the models first appear.
func SumUsage(reports []Usage) (sums []Usage) {
	if len(reports) == 0 {
		return nil
	}
	at := make(map[string]int, 1)
	for i := range reports {
		u := &reports[i]
		k, ok := at[u.Model]
		if !ok {
			k = len(sums)
			at[u.Model] = k
			sums = append(sums, Usage{Model: u.Model})
		}
		sums[k].add(u)
	}
	return sums
}

func (*Usage) event() {}
