package interop

import "syscall"

// childAttr has the kernel end a server when the tests are killed, as they are at their timeout.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
