package a2a

import "strings"

// RedactedQuery replaces the query of a webhook's URL wherever the URL is shown or stored unencrypted.
const RedactedQuery = "[redacted]"

// RedactURL returns a URL with its query, if any, replaced by RedactedQuery.
func RedactURL(raw string) string {
	if base, _, ok := strings.Cut(raw, "?"); ok {
		return base + "?" + RedactedQuery
	}
	return raw
}
