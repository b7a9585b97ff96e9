package push

import (
	"bytes"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strings"
)

// minTail is the shortest beginning of a secret that is hidden where the text ends in it.
const minTail = 4

// redactor hides secrets where a receiver repeats them.
type redactor struct{ secrets [][]byte }

// newRedactor makes a redactor for secrets, in plain text and as receivers write them in JSON, HTML and URLs.
func newRedactor(secrets ...string) redactor {
	var r redactor
	add := func(s string) {
		if s != "" && !slices.ContainsFunc(r.secrets, func(have []byte) bool { return string(have) == s }) {
			r.secrets = append(r.secrets, []byte(s))
		}
	}
	for _, s := range secrets {
		add(s)
		add(html.EscapeString(s))
		add(url.QueryEscape(s))
		add(url.PathEscape(s))
		for _, escape := range []bool{true, false} {
			var buf bytes.Buffer
			enc := json.NewEncoder(&buf)
			enc.SetEscapeHTML(escape)
			if err := enc.Encode(s); err == nil {
				add(string(bytes.Trim(bytes.TrimSpace(buf.Bytes()), `"`)))
			}
		}
	}
	return r
}

// clean returns the first keep bytes of data, with [redacted] instead of secrets. It searches all
// of data. So it also hides the first half of a secret that crosses the cut, or that ends data
// because the rest was not read.
func (r redactor) clean(data []byte, keep int) []byte {
	hidden := make([]bool, len(data))
	for _, s := range r.secrets {
		end := 0
		for at := 0; at+len(s) <= len(data); at++ {
			i := bytes.Index(data[at:], s)
			if i < 0 {
				break
			}
			at += i
			for j := max(at, end); j < at+len(s); j++ {
				hidden[j] = true
			}
			end = at + len(s)
		}
		for n := min(len(s)-1, len(data)); n >= minTail; n-- {
			if bytes.HasSuffix(data, s[:n]) {
				for j := len(data) - n; j < len(data); j++ {
					hidden[j] = true
				}
				break
			}
		}
	}
	keep = max(keep, 0)
	out := make([]byte, 0, min(keep, len(data)))
	for i := 0; i < len(data) && i < keep; i++ {
		switch {
		case !hidden[i]:
			out = append(out, data[i])
		case i == 0 || !hidden[i-1]:
			out = append(out, redacted...)
		}
	}
	return out[:min(len(out), keep)]
}

// minValue is the shortest value in a query that is treated as a secret by itself.
const minValue = 6

// querySecrets returns the secrets in the query of a URL: the whole query, and the values in it.
func querySecrets(u *url.URL) (list []string) {
	if u.RawQuery == "" {
		return nil
	}
	list = append(list, u.RawQuery)
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		_, value, _ := strings.Cut(pair, "=")
		if len(value) < minValue {
			continue
		}
		list = append(list, value)
		if plain, err := url.QueryUnescape(value); err == nil {
			list = append(list, plain)
		}
	}
	return list
}
