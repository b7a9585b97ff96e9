package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// childAttr has the kernel kill a replica whose test binary was killed.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// procState returns the letter of a process's state: T is stopped.
func procState(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := bytes.Cut(stat, []byte(") ")) // behind the name, which may hold anything else
	return string(rest[:1])
}
