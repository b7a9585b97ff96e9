package a2ad

import "regexp"

// The form of the keys of recorded steps, such as m2/6b86b273/gather#1.1/plan#1.
var (
	turnOfKey    = regexp.MustCompile(`^(?:m\d+/)?`)
	scopeOfKey   = regexp.MustCompile(`^(?:m\d+/)?(?:[0-9a-f]{8}/)?`)
	keyOfLibrary = regexp.MustCompile(`postponed($|/)|/pause#[\d.]+$|/wait(#\d+)?$`)
)

// postponedKey is the key of the step that records why a task waits for a corrected program.
const postponedKey = "postponed"

// turnOf returns the prefix that names the message, or an empty text for the first message.
func turnOf(key string) string { return turnOfKey.FindString(key) }

// scopeOf returns the prefix that names the message and the checkpoint of a handler.
func scopeOf(key string) string { return scopeOfKey.FindString(key) }

// ofLibrary reports whether the package makes the key for itself, without a call of the agent.
func ofLibrary(key string) bool { return keyOfLibrary.MatchString(key) }
