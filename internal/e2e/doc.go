// Package e2e runs a2ad as its users do: real processes on a real PostgreSQL, driven over HTTP, and killed, stopped,
// cut off and restarted while they work. There is nothing in it but tests; package check has the invariants that
// every one of them must leave behind.
package e2e
