package a2a

import "strings"

// RedactedQuery stands for the query of a webhook's URL wherever the URL is shown or kept in clear.
const RedactedQuery = "[redacted]"

// RedactURL returns a URL with RedactedQuery in place of its query, if it has one.
func RedactURL(raw string) string {
	if base, _, ok := strings.Cut(raw, "?"); ok {
		return base + "?" + RedactedQuery
	}
	return raw
}
