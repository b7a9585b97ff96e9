package decode

import (
	"encoding/base64"
	"strings"
)

// Base64 returns the standard form with padding of a base64 text in either alphabet, with or
// without padding, and its decoded size. A text in that form is returned unchanged. The alphabets
// must not be mixed.
func Base64(s string) (text string, size int, ok bool) {
	body := strings.TrimRight(s, "=")
	if pad := len(s) - len(body); pad > 2 || pad > 0 && len(s)%4 != 0 {
		return "", 0, false
	}
	var seen byte
	for i := range len(body) {
		seen |= alphabet[body[i]]
	}
	if seen&invalid != 0 || seen&(onlyStandard|onlyURL) == onlyStandard|onlyURL || len(body)%4 == 1 {
		return "", 0, false
	}
	size = base64.RawStdEncoding.DecodedLen(len(body))
	if seen&onlyURL == 0 && len(s)%4 == 0 && tailIsZero(body) {
		return s, size, true
	}
	enc := base64.RawStdEncoding
	if seen&onlyURL != 0 {
		enc = base64.RawURLEncoding
	}
	data, err := enc.DecodeString(body)
	if err != nil {
		return "", 0, false
	}
	return base64.StdEncoding.EncodeToString(data), size, true
}

// Classes of bytes in base64 texts, as bits.
const (
	onlyStandard = 1 << iota
	onlyURL
	invalid
)

var alphabet = func() (class [256]byte) {
	for i := range class {
		switch b := byte(i); {
		case b >= 'A' && b <= 'Z', b >= 'a' && b <= 'z', b >= '0' && b <= '9':
		case b == '+', b == '/':
			class[i] = onlyStandard
		case b == '-', b == '_':
			class[i] = onlyURL
		default:
			class[i] = invalid
		}
	}
	return class
}()

// tailIsZero reports whether the unused bits of the last digit are zero, as every encoder writes
// them.
func tailIsZero(body string) bool {
	switch len(body) % 4 {
	case 2:
		return strings.IndexByte("AQgw", body[len(body)-1]) >= 0
	case 3:
		return strings.IndexByte("AEIMQUYcgkosw048", body[len(body)-1]) >= 0
	}
	return true
}
