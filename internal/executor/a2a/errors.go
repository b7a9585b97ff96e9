package a2a

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/wire/answer"
)

// temporary reports whether another try may succeed.
func temporary(err error) bool {
	var broke *lostError
	var said *answer.Error
	var refused *refusal
	switch {
	case executor.IsPermanent(err):
		return false
	case errors.As(err, &broke):
		return true
	case errors.As(err, &said):
		switch said.Code {
		case answer.CodeParse, answer.CodeInvalidRequest, answer.CodeMethodNotFound, answer.CodeInvalidParams:
			return false
		}
		return said.Code > answer.CodeTaskNotFound || said.Code <= answer.CodeVersion // of A2A itself
	case errors.As(err, &refused):
		return refused.temporary()
	}
	return false
}

// unsent reports whether the upstream certainly has not accepted the request.
func unsent(err error) bool {
	var broke *lostError
	var refused *refusal
	switch {
	case errors.As(err, &broke):
		return !broke.sent
	case errors.As(err, &refused):
		return refused.notAccepted()
	}
	return false
}

// away reports whether the upstream was not reached, or something in front of it answered in its place.
func away(err error) bool {
	var broke *lostError
	var refused *refusal
	switch {
	case errors.As(err, &broke):
		return !broke.sent
	case errors.As(err, &refused):
		switch refused.status {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
	}
	return false
}

// unanswered reports whether the upstream itself has not answered, or only in part.
func unanswered(err error) bool {
	var broke *lostError
	return errors.As(err, &broke) || away(err)
}

// requestedDelay returns the delay that the upstream asked for, or 0.
func requestedDelay(err error) time.Duration {
	var refused *refusal
	if errors.As(err, &refused) {
		return refused.after
	}
	return 0
}

// runError returns the error of the run. It is permanent if another attempt would not help. Its text is for the
// client, and must not show the address of the upstream.
func (s *session) runError(err error) error {
	var said *answer.Error
	var broke *lostError
	var refused *refusal
	switch {
	case executor.IsPermanent(err), executor.RetryDelay(err) > 0 && !away(err):
		return err
	case errors.As(err, &broke):
		s.log.Warn("upstream is unreachable", "err", broke.err)
	case errors.As(err, &said):
		if said.Code == answer.CodeVersion || said.Code == answer.CodeMethodNotFound {
			s.e.cards.expire() // it may speak another version now
		}
		err = fmt.Errorf("the upstream agent answers with %w", err)
	case errors.As(err, &refused):
	default:
		return err
	}
	if wait := requestedDelay(err); wait > 0 && temporary(err) && executor.RetryDelay(err) == 0 {
		err = executor.RetryAfter(err, wait)
	}
	if away(err) {
		return executor.Unreachable(err)
	}
	if !temporary(err) {
		return executor.Permanent(err)
	}
	return err
}
