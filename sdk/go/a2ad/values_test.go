package a2ad_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
	"github.com/a2ad/a2ad/sdk/go/a2ad/a2adtest"
)

// The usage of a step is counted once, however often the agent runs.
func TestUsageIsCountedOnce(t *testing.T) {
	t.Parallel()
	agent := func(ctx context.Context, t *a2ad.Task) (any, error) {
		fails := t.Attempt() == 1
		err := a2ad.Do(ctx, t, "model", func(ctx context.Context) error {
			err := t.Usage(ctx, a2ad.Usage{Model: "m", InputTokens: 1})
			if fails {
				fails = false
				err = errors.Join(err, errors.New("busy"))
			}
			return err
		}, a2ad.Retries(1))
		return nil, errors.Join(err, t.Usage(ctx, a2ad.Usage{Model: "m", Requests: 1}), t.Sleep(ctx, time.Hour))
	}
	r, err := a2adtest.CrashEverywhere(agent, "x", a2adtest.Client{}, func(r *a2adtest.Result) string {
		return fmt.Sprint(r.State, r.Keys())
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := (a2ad.Usage{Model: "m", InputTokens: 2, Requests: 1}); r.Usage["m"] != want {
		t.Errorf("the usage is %+v, want %+v", r.Usage["m"], want)
	}
	if want := []string{"model#1", "usage#1", "sleep#1"}; !slices.Equal(r.Keys(), want) {
		t.Errorf("the steps are %v, want %v", r.Keys(), want)
	}
}

func TestArtifactsAreAppendedAndReplaced(t *testing.T) {
	t.Parallel()
	r := crashEverywhere(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		report := t.Artifact("report")
		return nil, errors.Join(
			report.Write(ctx, "text "),
			report.Append(ctx, a2ad.JSON([]int{1}), a2ad.Part{URL: "https://example.com/a.png", Filename: "a.png"}),
			report.Write(ctx, "more"),
			t.Artifact("file").File(ctx, "p.png", "image/png", []byte("old")),
			t.Artifact("file").File(ctx, "p.png", "image/png", []byte("new")),
		)
	}, "x", a2adtest.Client{})
	report, file := r.Artifacts["report"].Parts, r.Artifacts["file"].Parts
	if len(report) != 4 || string(report[1].Data) != "[1]" || report[2].Filename != "a.png" ||
		*report[3].Text != "more" {
		t.Errorf("the report is %+v", report)
	}
	if len(file) != 1 || string(file[0].Raw) != "new" || file[0].MediaType != "image/png" {
		t.Errorf("the file is %+v", file)
	}
}

func TestFailedCalls(t *testing.T) {
	t.Parallel()
	r := run(t, func(ctx context.Context, t *a2ad.Task) (any, error) {
		_, err := t.Call(ctx, "shop", "x", a2ad.Abandon())
		var failed *a2ad.CallError
		if !errors.As(err, &failed) {
			return nil, err
		}
		return failed.Result.State + " " + err.Error(), nil
	}, "x", a2adtest.Client{Calls: map[string]func(string) any{
		"shop": func(string) any { return errors.New("closed") },
	}})
	if want := `failed agent "shop" ended its task as failed: closed`; r.Text() != want {
		t.Errorf("got %q, want %q", r.Text(), want)
	}
}

func TestSchemas(t *testing.T) {
	t.Parallel()
	type place struct {
		City string   `json:"city"`
		Tags []string `json:"tags,omitempty"`
	}
	got, err := a2ad.SchemaOf[place]()
	want := `{"properties":{"city":{"type":"string"},"tags":{"items":{"type":"string"},"type":"array"}},` +
		`"required":["city"],"type":"object"}`
	if err != nil || string(got) != want {
		t.Errorf("SchemaOf = %s, %v, want %s", got, err, want)
	}
}
