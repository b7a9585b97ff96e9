package operate

import (
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// The beginning of a message may end within an escape.
func TestFirstTextOfABeginning(t *testing.T) {
	t.Parallel()
	const text = "red: \x1b[31m \"x\" \\ \u2028 😀\n"
	quoted := `"red: \u001b[31m \"x\" \\ \u2028 \ud83d\ude00\n"`
	if got, _ := rawjson.String(a2a.Raw(quoted)); got != text {
		t.Fatalf("the text is %q", got)
	}
	message := `{"parts": [{"kind": "text", "text": ` + quoted + `}]}`
	for end := range len(message) {
		got := strings.TrimSuffix(firstText(message[:end]), "\uFFFD") // half of a surrogate pair
		if !strings.HasPrefix(text, got) {
			t.Errorf("the first text of %s is %q", message[:end], got)
		}
	}
	if got := firstText(message); got != text {
		t.Errorf("the first text is %q, want %q", got, text)
	}
}
