package a2ad

import (
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of the server, which are checked before anything is sent.
const (
	maxName    = 200     // bytes of a name; a key is a name with a number, and has at most 256
	maxKey     = 256     // bytes
	maxID      = 256     // bytes of the media type of a file
	maxText    = 1 << 20 // bytes of a text, or of another part of a message
	maxParts   = 100     // of a message or an artifact
	maxChoices = 100
	maxRetries = 1000
	maxUsage   = 1_000_000_000 // in one report
	maxWait    = 10 * 365 * 24 * time.Hour
)

var validAgent = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

func checkAgent(name string) error {
	if !validAgent.MatchString(name) {
		return misuse("the name of an agent must have 1 to 64 letters, digits, - and _, and begin with a letter or a "+
			"digit: %.80q", name)
	}
	return nil
}

// checkText refuses a text that the server cannot store.
func checkText(text, what string, most int) error {
	if !utf8.ValidString(text) {
		return misuse("%s is not valid UTF-8: %.60q", what, text)
	}
	if len(text) > most {
		return misuse("%s has %d bytes; at most %d are allowed", what, len(text), most)
	}
	return nil
}

// checkName refuses what cannot be a name or an id.
func checkName(name, what string) error {
	if name == "" || strings.Contains(name, "\x00") {
		return misuse("%s must have 1 to %d bytes and no NUL: %.60q", what, maxName, name)
	}
	return checkText(name, what, maxName)
}

func checkDuration(d time.Duration, what string) error {
	if d < 0 || d > maxWait {
		return misuse("%s must be between 0 and ten years, not %s", what, d)
	}
	return nil
}

func checkMoment(at time.Time, what string) error {
	if at.Before(time.Unix(0, 0)) || at.UTC().Year() >= 9999 {
		return misuse("%s must be between the years 1970 and 9998, not %s", what, at)
	}
	return nil
}

func checkChoices(texts []string) error {
	if len(texts) == 0 || len(texts) > maxChoices {
		return misuse("Choices must have 1 to %d texts, not %d", maxChoices, len(texts))
	}
	for i, text := range texts {
		if err := checkText(text, "a text of Choices", maxText); err != nil {
			return err
		}
		if text == "" || strings.TrimSpace(text) != text {
			return misuse("text %d of Choices must not be empty or have spaces around it: %.60q", i+1, text)
		}
	}
	return nil
}
