package notify

import (
	"encoding/hex"
	"strings"
)

// Channel is the PostgreSQL channel that carries wake-ups.
const Channel = "a2ad"

// All is the key that means every key.
const All = "*"

const (
	maxPayload = 7800
	maxReplica = 255 // bytes of an escaped replica id
)

// pack writes the keys to as few payloads as possible. If a key is too long for any payload the result is All.
func pack(replica string, keys map[string]struct{}) []string {
	var payloads []string
	head := escape(replica)
	buf := []byte(head)
	for key := range keys {
		k := escape(key)
		if len(head)+1+len(k) > maxPayload {
			return packAll(replica)
		}
		if len(buf)+1+len(k) > maxPayload {
			payloads = append(payloads, string(buf))
			buf = buf[:len(head)]
		}
		buf = append(buf, ' ')
		buf = append(buf, k...)
	}
	if len(buf) > len(head) {
		payloads = append(payloads, string(buf))
	}
	return payloads
}

func packAll(replica string) []string {
	return []string{escape(replica) + " " + All}
}

// parse reads a payload. ok is false for anything that pack does not write; then the caller must wake all waiters.
// The keys may contain All.
func parse(payload string) (replica string, keys []string, ok bool) {
	if len(payload) > maxPayload {
		return "", nil, false
	}
	words := strings.Split(payload, " ")
	if len(words) < 2 {
		return "", nil, false
	}
	for i, w := range words {
		if words[i], ok = unescape(w); !ok {
			return "", nil, false
		}
	}
	return words[0], words[1:], true
}

func plain(c byte) bool { return '!' <= c && c <= '~' && c != '%' }

func escape(s string) string {
	n := 0
	for i := range len(s) {
		if !plain(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	buf := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if plain(s[i]) {
			buf = append(buf, s[i])
		} else {
			buf = hex.AppendEncode(append(buf, '%'), []byte{s[i]})
		}
	}
	return string(buf)
}

func unescape(s string) (string, bool) {
	var buf []byte // nil until the first escape
	for i := 0; i < len(s); i++ {
		switch {
		case plain(s[i]):
			if buf != nil {
				buf = append(buf, s[i])
			}
		case s[i] == '%' && i+2 < len(s):
			if buf == nil {
				buf = append(make([]byte, 0, len(s)), s[:i]...)
			}
			var err error
			if buf, err = hex.AppendDecode(buf, []byte(s[i+1:i+3])); err != nil {
				return "", false
			}
			i += 2
		default:
			return "", false
		}
	}
	if buf != nil {
		return string(buf), true
	}
	return s, s != ""
}
