// Package sse writes and reads event streams (text/event-stream of the HTML standard).
//
// The Writer is for our server: each stream has its own, each call flushes, and an event needs no
// allocation. The Reader is for our client, for upstream agents and for tests. It accepts
// everything that the standard allows, within limits. IDs have the form `<seq>-<8 hex>`: the number
// of an event in its task's log and the first digits of its uid, see FormatID.
//
// The package knows nothing about tasks or JSON, except that a line break in a JSON document is
// white space and may be replaced by a blank.
package sse
