//go:build !linux

package e2e_test

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

func childAttr() *syscall.SysProcAttr { return nil }

// procState returns the letter of a process's state: T is stopped.
func procState(pid int) string {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	if err != nil || len(out) == 0 {
		return ""
	}
	return strings.TrimSpace(string(out))[:1]
}
