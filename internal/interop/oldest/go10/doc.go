// Package go10 tests a running server with the oldest official Go client of A2A 1.0. TestOldestClients of
// internal/interop runs its tests. It is a separate module, because a module has only one version of a client.
package go10
