// Package interop holds a2ad against the official A2A clients: what its tests see of the server is what somebody
// else's client sees. It starts the a2ad binary as a process, kills it and starts it again, and imports nothing of
// a2ad, so that no mistake can be made on both sides. It is a module of its own because the official clients bring
// dependencies that a2ad does not want.
package interop
