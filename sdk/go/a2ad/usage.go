package a2ad

import "context"

// Usage is what calls of a model have used. The server sums it up for each task and model.
type Usage struct {
	Model             string `json:"model,omitempty"`
	InputTokens       int64  `json:"inputTokens,omitempty"`
	OutputTokens      int64  `json:"outputTokens,omitempty"`
	CachedInputTokens int64  `json:"cachedInputTokens,omitempty"` // of the input tokens
	ReasoningTokens   int64  `json:"reasoningTokens,omitempty"`   // of the output tokens
	Requests          int64  `json:"requests,omitempty"`
}

func (u *Usage) check() error {
	for _, n := range []int64{u.InputTokens, u.OutputTokens, u.CachedInputTokens, u.ReasoningTokens, u.Requests} {
		if n < 0 || n > maxUsage {
			return misuse("Usage: a number is not between 0 and %d: %+v", maxUsage, *u)
		}
	}
	if len(u.Model) > maxName || !plain(u.Model) {
		return misuse("Usage: the model must have at most %d bytes of text: %.60q", maxName, u.Model)
	}
	return nil
}

// Usage reports what calls of a model have used. Inside a step it is stored together with the step's record, and so
// counted once, like the step. Elsewhere it is recorded like a status.
func (t *Task) Usage(ctx context.Context, u Usage) error {
	if err := u.check(); err != nil {
		return err
	}
	if running := stepOf(ctx); running != nil && running.t == t {
		running.addUsage(u)
		return t.s.ended()
	}
	return t.once(ctx, "usage", "usage", event{Usage: &u})
}
