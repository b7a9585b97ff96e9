// Package push delivers webhooks: it follows the log of tasks with a cursor per webhook
// and POSTs what is new, in order, until the receiver takes it.
//
// It promises at least one delivery of everything a webhook covers, the same bytes and
// the same id on every retry, and that no request goes to an address its Policy does not
// permit, whatever the names of a URL resolve to. It must not know protocol versions
// beyond what a request's headers say, and never holds a transaction while it speaks to
// a receiver.
package push
