package a2a

import "time"

// Retention says how long ended tasks are kept. Negative: forever; 0: the default.
type Retention struct {
	Completed, Failed, Canceled, Rejected time.Duration // a task, by its final state
	Log                                   time.Duration // its events, except the last one
}

// Of returns how long a task with this final state is kept.
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

// Or returns r, with the values of def where r sets none.
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
