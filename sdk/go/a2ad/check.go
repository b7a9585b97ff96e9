package a2ad

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of the server, which are checked before anything is sent.
const (
	maxName    = 200       // of a step, a signal, an agent; the key is longer
	maxKey     = 240       // of a name with its prefixes, before its number
	maxID      = 200       // of an artifact
	maxParts   = 100       // of a message or an artifact
	maxPart    = 1 << 20   // of a text or data part
	maxFile    = 768 << 10 // of a file, which is longer in base64
	maxMessage = 3 << 20   // of all parts, which are one request
	maxResult  = 1 << 20   // of one recorded value
	maxChoices = 100
	maxUsage   = 1_000_000_000 // of one report
	maxWait    = 10 * 365 * 24 * time.Hour
	maxRetry   = 7 * 24 * time.Hour
)

var validAgent = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

func checkName(what, name string) error {
	if name == "" || len(name) > maxName || !plain(name) {
		return misuse("%s must have 1 to %d bytes of text: %.60q", what, maxName, name)
	}
	return nil
}

// plain reports whether a text is UTF-8 without NUL, which the server does not store in names.
func plain(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

func checkWait(what string, d time.Duration) error {
	if d < 0 || d > maxWait {
		return misuse("%s must be between 0 and ten years, not %s", what, d)
	}
	return nil
}

func checkParts(what string, parts []Part) error {
	if len(parts) == 0 || len(parts) > maxParts {
		return misuse("%s must have 1 to %d parts, not %d", what, maxParts, len(parts))
	}
	total := 0
	for i := range parts {
		size, problem := parts[i].check()
		if problem != "" {
			return misuse("%s: part %d %s", what, i+1, problem)
		}
		total += size
	}
	if total > maxMessage {
		return misuse("%s has %d bytes; send at most %d at once", what, total, maxMessage)
	}
	return nil
}

// check returns the size of a part, and what is wrong with it.
func (p *Part) check() (size int, problem string) {
	contents := 0
	for _, has := range []bool{p.Text != nil, p.Data != nil, len(p.Raw) > 0, p.URL != ""} {
		if has {
			contents++
		}
	}
	switch {
	case contents != 1:
		return 0, fmt.Sprintf("must have one of Text, Data, Raw and URL; it has %d", contents)
	case len(p.Raw) > maxFile:
		return 0, fmt.Sprintf("is a file of %d bytes; store it elsewhere and send its URL", len(p.Raw))
	case p.Data != nil && !json.Valid(p.Data):
		return 0, "has data that is not JSON"
	case !plain(p.URL) || !plain(p.MediaType) || !plain(p.Filename):
		return 0, "has a URL, a media type or a file name that is not text"
	}
	if u, err := url.Parse(p.URL); p.URL != "" && (err != nil || u.Scheme == "") {
		return 0, fmt.Sprintf("has no absolute URL: %.60q", p.URL)
	}
	metadata, err := json.Marshal(p.Metadata)
	if err != nil {
		return 0, fmt.Sprintf("has metadata that is not JSON: %v", err)
	}
	size = len(p.Data) + len(p.Raw)*4/3 + len(p.URL) + len(p.MediaType) + len(p.Filename) + len(metadata)
	if p.Text != nil {
		size += len(*p.Text)
	}
	if size > maxPart+64<<10 || len(p.Data) > maxPart || p.Text != nil && len(*p.Text) > maxPart {
		return 0, fmt.Sprintf("has %d bytes; at most %d can be sent", size, maxPart)
	}
	return size, ""
}

func checkChoices(texts []string) error {
	if len(texts) == 0 || len(texts) > maxChoices {
		return misuse("Choices must have 1 to %d texts, not %d", maxChoices, len(texts))
	}
	for i, text := range texts {
		switch {
		case text == "" || strings.TrimSpace(text) != text || !plain(text):
			return misuse("Choices: %q must be a text without spaces around it", text)
		case slices.Contains(texts[:i], text):
			return misuse("Choices: %q is there twice", text)
		}
	}
	return nil
}

// encode returns a value as JSON. what names it in the error.
func encode(value any, what string) (json.RawMessage, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, misuse("%s has no form in JSON: %v", what, err)
	}
	if len(data) > maxResult {
		return nil, misuse("%s is %d bytes of JSON; at most %d can be recorded", what, len(data), maxResult)
	}
	return data, nil
}
