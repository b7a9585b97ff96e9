package a2a

import "time"

// Retention is how long what has ended is kept. Negative: for ever; 0: as long as the default says.
type Retention struct {
	Completed, Failed, Canceled, Rejected time.Duration // the task, by how it ended
	Log                                   time.Duration // its events, but for the last
}

// Of returns how long a task that ended in a state is kept.
func (r Retention) Of(s State) time.Duration {
	switch s {
	case StateCompleted:
		return r.Completed
	case StateFailed:
		return r.Failed
	case StateCanceled:
		return r.Canceled
	case StateRejected:
		return r.Rejected
	}
	return -1
}

// Or returns r with what it leaves open taken from def.
func (r Retention) Or(def Retention) Retention {
	for _, d := range []struct{ v, def *time.Duration }{
		{&r.Completed, &def.Completed}, {&r.Failed, &def.Failed}, {&r.Canceled, &def.Canceled},
		{&r.Rejected, &def.Rejected}, {&r.Log, &def.Log},
	} {
		if *d.v == 0 {
			*d.v = *d.def
		}
	}
	return r
}
