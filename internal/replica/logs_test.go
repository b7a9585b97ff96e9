package replica

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/config"
)

func TestLogsSayWhyTheDatabaseIsNotAvailable(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	logs := config.Logs{LogFormat: "json"}
	err := a2a.Error{Code: a2a.CodeUnavailable,
		Message: "the database is not available"}.With(errors.New("password authentication failed"))
	log := NewLogger(logs, &out)
	log.Warn("claim", "err", err)
	log.WithGroup("run").With("err", err).Warn("claim")
	log.Warn("claim", slog.Group("run", "err", err))
	log.Info("claim", "tasks", 1)
	const why = `"err":"the database is not available: password authentication failed"`
	for i, want := range []string{`"msg":"claim",` + why + "}", `"msg":"claim","run":{` + why + "}}",
		`"msg":"claim","run":{` + why + "}}", `"level":"INFO","msg":"claim","tasks":1}`} {
		if line := strings.Split(out.String(), "\n")[i]; !strings.HasSuffix(line, want) {
			t.Errorf("the log has %s, want %s", line, want)
		}
	}
}
