package a2a_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

func TestIDIsReadableInLogs(t *testing.T) {
	t.Parallel()
	const text = "01a1f887-7fbd-72d5-a178-36d674819994"
	id, err := a2a.ParseID(text)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("run", "task_id", id)
	if want := `"task_id":"` + text + `"`; !strings.Contains(out.String(), want) {
		t.Errorf("logged %s, want %s", out.String(), want)
	}
}
