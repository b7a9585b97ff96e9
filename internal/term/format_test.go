package term

import (
	"testing"
	"time"
)

func TestAgeHasOneUnit(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m", 59 * time.Minute: "59m",
		90 * time.Minute: "1h", 47 * time.Hour: "47h", 49 * time.Hour: "2d",
	} {
		if got := Age(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestWidthIsThatOfATerminal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "abc": 3, "漢字": 4, "é": 1, "e\u0301": 1, "🎉": 2, "\u202e": 6, "ｱ": 1, "Ａ": 2,
	} {
		if got := Width(text); got != want {
			t.Errorf("%q takes %d columns, want %d", text, got, want)
		}
	}
	for text, want := range map[string]string{"abcdef": "abc…", "漢字漢字": "漢…", "abcd": "abcd", "🎉🎉🎉": "🎉…"} {
		if got := cut(text, 4); got != want {
			t.Errorf("%q is cut to %q, want %q", text, got, want)
		}
	}
}
