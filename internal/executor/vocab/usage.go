package vocab

import (
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
)

func (r *reader) usage(v []byte) a2a.Event {
	u := &a2a.Usage{}
	r.members(v, "usage", func(key, path string, v []byte) bool {
		switch key {
		case "model":
			u.Model = r.id(v, path)
		case "inputTokens":
			u.Input = r.amount(v, path)
		case "outputTokens":
			u.Output = r.amount(v, path)
		case "cachedInputTokens":
			u.Cached = r.amount(v, path)
		case "reasoningTokens":
			u.Reasoning = r.amount(v, path)
		case "requests":
			u.Requests = r.amount(v, path)
		default:
			return false
		}
		return true
	})
	return u
}

// amount reads an integer that is not negative. Its digits are read as they are: 1.0 and 1e3 are none.
func (r *reader) amount(v []byte, path string) int64 {
	n, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil || n > a2a.MaxUsage {
		r.fail(path, "must be an integer from 0 to %d", a2a.MaxUsage)
		return 0
	}
	return int64(n)
}
