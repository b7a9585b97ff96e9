package main

import "testing"

// TestSendWithAKeyIsTheSameRequest checks that a repeated command sends the same message id. The server refuses a key
// that comes with a different request.
func TestSendWithAKeyIsTheSameRequest(t *testing.T) {
	t.Parallel()
	id := func(key string) string { return (&SendCmd{IdempotencyKey: key}).messageID() }
	for _, tc := range []struct {
		one, other string
		same       bool
	}{{"k", "k", true}, {"k", "l", false}, {"", "", false}} {
		if one, other := id(tc.one), id(tc.other); (one == other) != tc.same {
			t.Errorf("sends with the keys %q and %q have the ids %s and %s", tc.one, tc.other, one, other)
		}
	}
}
