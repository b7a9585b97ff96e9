package a2a_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

func TestIDIsLoggedAsText(t *testing.T) {
	t.Parallel()
	const text = "019a9d40-1234-7abc-8def-010203040506"
	id, err := a2a.ParseID(text)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).With("task_id", id).Info("run")
	slog.New(slog.NewTextHandler(&log, nil)).Info("run", "task_id", id)
	if got := log.String(); !strings.Contains(got, `"task_id":"`+text+`"`) || !strings.Contains(got, "task_id="+text) {
		t.Errorf("the logs are\n%s", got)
	}
}
