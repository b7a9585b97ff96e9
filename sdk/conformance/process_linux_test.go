package conformance_test

import "syscall"

// childAttr makes the kernel kill a process when the test binary is killed.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
