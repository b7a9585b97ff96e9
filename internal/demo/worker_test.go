package demo_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/demo"
)

func TestScriptsAreJSON(t *testing.T) {
	t.Parallel()
	for _, s := range demo.Scripts() {
		if !json.Valid([]byte(s)) {
			t.Errorf("invalid JSON: %s", s)
		}
	}
}

func TestWorkerPlansWhatTheOrderAsks(t *testing.T) {
	t.Parallel()
	for run, want := range map[string]string{
		`{"messages":[{"parts":[{"text":"Approve a discount"}]}]}`:          `"choices":["approve","reject"]`,
		`{"messages":[{"parts":[{"text":"Change the delivery address"}]}]}`: `"required":["street","city"]`,
		`{"messages":[{"parts":[{"text":"Plan the delivery"}]}]}`:           `"tasks":["weight","label"]`,
		`{"messages":[{"parts":[{"text":"Plan the delivery"}]}],
			"steps":[{"key":"both","endedAt":"2026-01-01T00:00:00Z"}]}`: `TASK_STATE_COMPLETED`,
		// A worker that was killed between its events and its wait reports all of them again.
		`{"messages":[{"parts":[{"text":"Plan"}]}],"steps":[{"key":"weight"}]}`: `"tasks":["weight","label"]`,
	} {
		got, err := demo.Plan(run)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got, want) {
			t.Errorf("for %s the worker reports %s, want %s in it", run, got, want)
		}
	}
}
