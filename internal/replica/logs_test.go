package replica

import (
	"context"
	"errors"
	"fmt"
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

func TestServerThatStopsDoesNotWarnOfIt(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancelCause(context.Background())
	end(errors.New("it is told to stop"))
	canceled := fmt.Errorf("claim: %w", context.Canceled)
	for _, c := range []struct {
		ended bool // the context of the line
		level slog.Level
		err   error
		want  string
	}{
		{true, slog.LevelWarn, canceled, "DEBUG"},
		{true, slog.LevelWarn, fmt.Errorf("claim: %w", context.Cause(ended)), "DEBUG"},
		{true, slog.LevelWarn, errors.New("deadlock detected"), "WARN"},
		{true, slog.LevelError, canceled, "ERROR"},
		{false, slog.LevelWarn, canceled, "WARN"}, // of something else
	} {
		ctx := context.Background()
		if c.ended {
			ctx = ended
		}
		for level, want := range map[slog.Level]string{slog.LevelDebug: c.want, slog.LevelInfo: c.want} {
			if level > slog.LevelDebug && want == "DEBUG" {
				want = ""
			}
			var out strings.Builder
			NewLogger(config.Logs{LogFormat: "text", LogLevel: level}, &out).Log(ctx, c.level, "claim", "err", c.err)
			if got := out.String(); want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("a log of %s has %q for %s: %v, want %q", level, got, c.level, c.err, want)
			}
		}
	}
}
