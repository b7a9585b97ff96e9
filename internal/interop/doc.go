// Package interop tests a2ad with the official A2A clients: its tests see what other people's clients see. It starts
// the a2ad binary as a process, kills it and starts it again. It imports nothing of a2ad, so that no mistake can be
// made on both sides. It is a separate module, because the official clients have dependencies that a2ad does not
// want.
package interop
