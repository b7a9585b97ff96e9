package a2ad_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

// writeTokens writes 38 tokens in 190 ms.
func writeTokens(ctx context.Context, t *a2ad.Task) error {
	for range 38 {
		if err := t.Write(ctx, "token "); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func TestStreamedTextIsSentAtOnceAndThenInBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		ended := make(chan struct{})
		_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			defer close(ended)
			if err := writeTokens(ctx, t); err != nil {
				return nil, err
			}
			err := t.Write(ctx, "large "+strings.Repeat("x", 32<<10)) // in the middle of a pause
			time.Sleep(time.Second)
			return nil, err
		})
		s.add("t", nil)
		<-ended
		stop()
		var at []time.Duration
		text := ""
		for _, r := range s.sent("events") {
			at, text = append(at, r.at), text+r.body
		}
		want := []time.Duration{0, 50, 100, 150, 190, 1190} // the last one ends the task
		for i := range want {
			want[i] *= time.Millisecond
		}
		if !slices.Equal(at, want) || strings.Count(text, "token ") != 38 || !strings.Contains(text, "large ") {
			t.Errorf("text was sent at %v, want %v", at, want)
		}
	})
}

// What the agent writes while it waits for an answer does not make more requests.
func TestSlowAnswersDoNotChangeTheTicks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.answer = func(r request) (int, string) {
			if strings.Contains(r.path, "events") {
				time.Sleep(30 * time.Millisecond)
			}
			return 0, ""
		}
		ended := make(chan struct{})
		_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			defer close(ended)
			if err := writeTokens(ctx, t); err != nil {
				return nil, err
			}
			time.Sleep(time.Second)
			return nil, nil
		})
		s.add("t", nil)
		<-ended
		stop()
		var at []time.Duration
		for _, r := range s.sent("events") {
			at = append(at, r.at)
		}
		want := []time.Duration{0, 50, 100, 150, 200, 1190} // the last one ends the task
		for i := range want {
			want[i] *= time.Millisecond
		}
		if !slices.Equal(at, want) {
			t.Errorf("text was sent at %v, want %v", at, want)
		}
	})
}

func TestMuchTextEndsThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		ended := make(chan struct{})
		_, stop := s.work(a2ad.Options{}, func(ctx context.Context, t *a2ad.Task) (any, error) {
			defer close(ended)
			err := t.Write(ctx, "a")
			time.Sleep(10 * time.Millisecond)
			err = errors.Join(err, t.Write(ctx, "b"))
			time.Sleep(10 * time.Millisecond) // the pause has begun
			err = errors.Join(err, t.Write(ctx, strings.Repeat("x", 32<<10)))
			time.Sleep(time.Second)
			return nil, err
		})
		s.add("t", nil)
		<-ended
		stop()
		if got := s.sent("events"); len(got) != 3 || got[1].at != 20*time.Millisecond {
			t.Errorf("%d requests, the second one after %s; want 3, and 20ms", len(got), got[1].at)
		}
	})
}
