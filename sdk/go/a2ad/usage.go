package a2ad

import "context"

// Usage is what a model used. The server sums it by task and model. Numbers are from 0 to 1,000,000,000.
type Usage struct {
	Model             string `json:"model,omitempty"`
	InputTokens       int64  `json:"inputTokens,omitempty"`
	OutputTokens      int64  `json:"outputTokens,omitempty"`
	CachedInputTokens int64  `json:"cachedInputTokens,omitempty"` // part of the input tokens
	ReasoningTokens   int64  `json:"reasoningTokens,omitempty"`   // part of the output tokens
	Requests          int64  `json:"requests,omitempty"`
}

// Usage reports what a model used.
//
// Recorded usage is not counted again when the agent runs again. Inside a step, it is recorded with the step. It also
// counts if the step fails.
func (t *Task) Usage(ctx context.Context, u Usage) error {
	s := t.s
	return s.do(ctx, func() error {
		if err := u.check(); err != nil {
			return err
		}
		running := stepOf(ctx, s)
		if running == nil {
			sent, err := s.once(ctx, "usage", "usage", "", usageEvent{u})
			if sent && err == nil {
				addSpanUsage(ctx, u)
			}
			return err
		}
		if err := running.addUsage(u); err != nil {
			return err
		}
		addSpanUsage(ctx, u)
		return nil
	})
}

func (u *Usage) numbers() []*int64 {
	return []*int64{&u.InputTokens, &u.OutputTokens, &u.CachedInputTokens, &u.ReasoningTokens, &u.Requests}
}

func (u *Usage) check() error {
	if u.Model != "" {
		if err := checkName(u.Model, "the model"); err != nil {
			return err
		}
	}
	if *u == (Usage{}) {
		return misuse("Usage needs a model or a number")
	}
	for _, n := range u.numbers() {
		if *n < 0 || *n > maxUsage {
			return misuse("a number of Usage must be between 0 and %d, not %d", maxUsage, *n)
		}
	}
	return nil
}

// plus returns the sum of two reports, if they are of one model and their sum fits into one.
func (u Usage) plus(more Usage) (Usage, bool) {
	numbers := more.numbers()
	for i, n := range u.numbers() {
		if *n += *numbers[i]; *n > maxUsage {
			return u, false
		}
	}
	return u, u.Model == more.Model
}
