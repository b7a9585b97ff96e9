package main

import "testing"

// TestSendWithAKeyIsTheSameRequest: the id of a message is a part of the request, and the
// server refuses a key that comes with another request.
func TestSendWithAKeyIsTheSameRequest(t *testing.T) {
	t.Parallel()
	id := func(key string) string { return (&SendCmd{IdempotencyKey: key}).messageID() }
	if id("k") != id("k") {
		t.Errorf("two sends with one key have the ids %s and %s", id("k"), id("k"))
	}
	if id("k") == id("l") || id("") == id("") {
		t.Error("sends that have no key in common have the same id")
	}
}
