package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// childAttr makes the kernel kill a replica when the test binary is killed.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// procState returns the letter of a process's state: T is stopped.
func procState(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := bytes.Cut(stat, []byte(") ")) // after the name, which may contain anything
	return string(rest[:1])
}
