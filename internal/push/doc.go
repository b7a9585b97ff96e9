// Package push delivers webhooks: it follows the logs of tasks with one cursor per webhook, and sends new states by
// POST, in order, until the receiver accepts them.
//
// It promises at least one delivery of everything that a webhook covers, with the same bytes and the same id on every
// retry. No request goes to an address that its Policy does not permit, whatever the names of a URL resolve to. The
// package must not know protocol versions beyond the headers of a request, and never has a transaction open while it
// talks to a receiver.
//
// A Deliverer claims due webhooks (deliverer.go). Each delivery is an attempt, a decision and a record (delivery.go). A
// Client makes the HTTP request of an attempt (attempt.go), and a Policy guards its addresses (guard.go).
package push
