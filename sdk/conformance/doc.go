// Package conformance tests that the worker libraries behave the same. Its tests play the files in cases with a driver
// of each library, a real server, and a proxy between them that causes faults. README.md describes how to add a case,
// and how to test a library for another language.
package conformance
