// Package browsertest tests the console in Chromium, on a real server. It is a module of its own, so that a2ad does not
// depend on the driver of the browser. `make console-browser` runs it.
package browsertest
