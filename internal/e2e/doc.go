// Package e2e runs a2ad as its users do: real processes on a real PostgreSQL, driven over HTTP, and killed, stopped,
// cut off and restarted while they work. It contains only tests. Package check has the invariants that must hold
// after each of them.
package e2e
