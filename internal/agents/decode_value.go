package agents

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// text reads a non-empty text into dst.
func (d *decoder) text(what string, dst *string) func(node) {
	return func(n node) {
		switch {
		case n.kind == kindString && n.text != "":
			*dst = n.text
		case n.kind == kindString || n.kind == kindNull:
			d.fault(n.line, "%s is empty; write a text or leave the line out", what)
		case n.kind == kindNumber || n.kind == kindBool:
			d.fault(n.line, "%s must be text, and %s without quotes is %s; write %q", what, n.text, n.kind, n.text)
		default:
			d.fault(n.line, "%s must be text, not %s", what, n.kind)
		}
	}
}

func (d *decoder) texts(what string, dst *[]string) func(node) {
	return func(n node) {
		if n.kind != kindList {
			d.fault(n.line, "%s must be a list of texts, not %s; write [a, b]", what, n.kind)
			return
		}
		for _, e := range n.list {
			var s string
			if d.text("each of "+what, &s)(e); s != "" {
				*dst = append(*dst, s)
			}
		}
	}
}

var mediaType = regexp.MustCompile(`^[A-Za-z0-9!#$&^_.+*-]+/[A-Za-z0-9!#$&^_.+*-]+( *;.*)?$`)

func (d *decoder) modes(what string, dst *[]string) func(node) {
	return func(n node) {
		if d.texts(what, dst)(n); n.kind == kindList && len(n.list) == 0 {
			d.fault(n.line, "%s is empty; name a media type or leave the line out", what)
		}
		for _, m := range *dst {
			if !mediaType.MatchString(m) {
				d.fault(n.line, "%s: %q is not a media type; write one like text/plain or */*", what, m)
			}
		}
	}
}

func (d *decoder) url(what string, dst *string) func(node) {
	return func(n node) {
		if d.text(what, dst)(n); *dst == "" {
			return
		}
		if u, err := url.Parse(*dst); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			d.fault(n.line, "%s: %q is not a URL; write one that starts with https:// or http://", what, *dst)
		}
	}
}

func (d *decoder) truth(what string, dst *bool) func(node) {
	return func(n node) {
		if n.kind != kindBool {
			d.fault(n.line, "%s must be true or false, not %s", what, n.kind)
			return
		}
		*dst = strings.EqualFold(n.text, "true")
	}
}

func (d *decoder) count(what string, most int, dst *int) func(node) {
	return func(n node) {
		v, err := strconv.Atoi(n.text)
		if n.kind != kindNumber || err != nil || v < 1 || v > most {
			d.fault(n.line, "%s must be a whole number from 1 to %d", what, most)
			return
		}
		*dst = v
	}
}

func (d *decoder) duration(what string, dst *time.Duration) func(node) {
	return func(n node) {
		v, err := time.ParseDuration(n.text)
		switch {
		case n.kind == kindNumber:
			d.fault(n.line, "%s: %s has no unit; write a duration like 30s, 5m or 1h", what, n.text)
		case n.kind != kindString || err != nil:
			d.fault(n.line, "%s must be a duration like 30s, 5m or 1h", what)
		case v <= 0:
			d.fault(n.line, "%s must be greater than zero; leave the line out for the server's default", what)
		default:
			*dst = v
		}
	}
}

var sizeUnits = []struct {
	suffix string
	bytes  int
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

// size reads a number of bytes, with or without a unit.
func (d *decoder) size(what string, most int, dst *int) func(node) {
	return func(n node) {
		for _, u := range sizeUnits {
			digits, ok := strings.CutSuffix(n.text, u.suffix)
			if !ok {
				continue
			}
			v, err := strconv.Atoi(strings.TrimSpace(digits))
			if (n.kind == kindNumber || n.kind == kindString) && err == nil && v > 0 && v <= most/u.bytes {
				*dst = v * u.bytes
				return
			}
			break
		}
		d.fault(n.line, "%s must be a size like 512KiB or 64MiB, at most %dMiB", what, most>>20)
	}
}

// choice reads one of several words, and calls set with its index.
func (d *decoder) choice(what string, words []string, set func(int)) func(node) {
	return func(n node) {
		i := slices.Index(words, n.text)
		if n.kind != kindString || i < 0 {
			d.fault(n.line, "%s must be %s", what, either(words))
			return
		}
		set(i)
	}
}

// word reads one of several words into dst. A word that looks like a number needs no quotes.
func (d *decoder) word(what string, words []string, dst *string) func(node) {
	return func(n node) {
		if n.kind == kindNumber {
			n.kind = kindString
		}
		d.choice(what, words, func(i int) { *dst = words[i] })(n)
	}
}

func either(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
