package a2a_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

func TestExplainSaysWhyTheServerIsUnavailable(t *testing.T) {
	t.Parallel()
	cause := errors.New("connection refused")
	for _, tt := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("read task: %w",
			a2a.Error{Code: a2a.CodeUnavailable, Message: "the database is not available"}.With(cause)),
			"read task: the database is not available: connection refused"},
		{&a2a.Error{Code: a2a.CodeUnavailable, Message: "busy"}, "busy"},
		// What a client sent stays out of the log.
		{a2a.Error{Code: a2a.CodeParse, Message: "the body could not be read"}.With(cause),
			"the body could not be read"},
		{cause, "connection refused"},
	} {
		if got := a2a.Explain(tt.err); got != tt.want {
			t.Errorf("Explain = %q, want %q", got, tt.want)
		}
	}
}
