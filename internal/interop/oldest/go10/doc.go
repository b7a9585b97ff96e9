// Package go10 is the oldest official Go client of A2A 1.0, against a server that runs already. TestOldestClients of
// internal/interop runs its tests. It is a module of its own because a module has one version of a client.
package go10
