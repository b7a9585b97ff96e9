// Package sse writes and reads event streams (text/event-stream of the HTML standard).
//
// The Writer is for our server: one stream per Writer, each call flushed, no
// allocation per event. The Reader is for our client, for upstream agents and for
// tests: it accepts everything that the standard does, within set limits. IDs are
// `<seq>-<8 hex>`: the place of an event in its task's log and the first digits of
// its uid, see FormatID.
//
// The package knows nothing about tasks or JSON, except that a line break in a JSON
// document is white space that may as well be a blank.
package sse
