//go:build unix && !linux

package devpg

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// postmasterOf reports whether pid is a live postgres whose data directory is data. The postmaster names the
// directory on its command line.
func postmasterOf(pid int, data string) bool {
	line, err := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(line), "postgres") && strings.Contains(string(line), data)
}

// childAttr puts the server into its own process group. This system sends no signal when a parent dies: the next
// Start stops a server that a killed process left running.
func childAttr(cred *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: cred, Setpgid: true}
}
