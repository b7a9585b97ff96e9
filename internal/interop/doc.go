// Package interop tests a2ad with the official A2A clients. It starts the a2ad binary as a process, kills it and starts
// it again. It imports nothing of a2ad, so that no mistake can be made on both sides. It is a separate module, because
// a2ad must not have the dependencies of the official clients.
package interop
