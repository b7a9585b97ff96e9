package sse

import (
	"strconv"
	"strings"
)

const (
	shortLen = 8  // hex digits
	maxSeq   = 19 // digits of the largest int64
)

// FormatID returns the id of an event: its seq and the first eight hex digits of its uid. After a
// failover the second part shows the server that a number belongs to another event than the one the
// client saw.
func FormatID(seq int64, short string) string {
	return strconv.FormatInt(seq, 10) + "-" + short
}

// ParseID reads an id made by FormatID, for example from a Last-Event-ID header. It is strict: ok
// means that s is exactly the result of FormatID for a seq of at least zero and eight lower-case
// hex digits. Its cost is bounded whatever the length of s.
func ParseID(s string) (seq int64, short string, ok bool) {
	if len(s) > maxSeq+1+shortLen {
		return 0, "", false
	}
	digits, short, found := strings.Cut(s, "-")
	if !found || len(short) != shortLen || !all(short, isLowerHex) || !all(digits, isDigit) {
		return 0, "", false
	}
	if digits == "" || digits[0] == '0' && digits != "0" {
		return 0, "", false
	}
	seq, err := strconv.ParseInt(digits, 10, 64)
	if err != nil { // out of range
		return 0, "", false
	}
	return seq, short, true
}

func all(s string, is func(byte) bool) bool {
	for i := range len(s) {
		if !is(s[i]) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool    { return '0' <= c && c <= '9' }
func isLowerHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' }
