package rawjson

import "math/bits"

// plain returns the index of the first byte of s from i on that must be escaped in a JSON string: a
// quote, a backslash or a control character. If there is none it returns len(s). It checks eight
// bytes at once, because most bytes of a document are text.
func plain[T string | []byte](s T, i int) int {
	for ; i+8 <= len(s); i += 8 {
		p := s[i : i+8] // lets the compiler load the eight bytes at once
		w := uint64(p[0]) | uint64(p[1])<<8 | uint64(p[2])<<16 | uint64(p[3])<<24 |
			uint64(p[4])<<32 | uint64(p[5])<<40 | uint64(p[6])<<48 | uint64(p[7])<<56
		if found := special(w); found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(s) && s[i] >= 0x20 && s[i] != '"' && s[i] != '\\' {
		i++
	}
	return i
}

// special marks the bytes of w that are not plain in their high bits. Only the lowest mark is
// reliable. A byte b is less than n if b-n borrows into its high bit while b's own high bit is
// clear, and x^c is zero where x equals c.
func special(w uint64) uint64 {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	return ((w - ones*0x20) | ((w ^ ones*'"') - ones) | ((w ^ ones*'\\') - ones)) &^ w & high
}
