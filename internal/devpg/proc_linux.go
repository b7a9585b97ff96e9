package devpg

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// postmasterOf reports whether pid is a live postgres whose data directory is data. The pid is not enough: after a
// crash it may name a zombie (pid 1 does not reap in some containers) or a later process with the same number.
func postmasterOf(pid int, data string) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return false
	}
	// The format is "pid (comm) state …". comm may hold anything, so the state follows the last parenthesis.
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 || end+2 >= len(stat) || stat[end+2] == 'Z' || stat[end+2] == 'X' {
		return false
	}
	cwd, err := os.Stat(filepath.Join(proc, "cwd"))
	if err != nil {
		return false
	}
	dir, err := os.Stat(data)
	return err == nil && os.SameFile(cwd, dir) && bytes.Contains(stat[:end], []byte("(post"))
}

// childAttr puts the server into its own process group, so that Ctrl-C reaches only a2ad, which drains before its
// database stops. It asks the kernel for a fast shutdown of the server if a2ad is killed.
func childAttr(cred *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: cred, Setpgid: true, Pdeathsig: syscall.SIGINT}
}
