package interop

import "syscall"

// childAttr makes the kernel end a server when the tests are killed, as at their timeout.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
