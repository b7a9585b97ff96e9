package exec

import (
	osexec "os/exec"
	"syscall"
	"unsafe"
)

// awaitExit returns when the command has ended, and does not reap it. So its id, which is also the id of its group,
// is not reused.
func awaitExit(cmd *osexec.Cmd) {
	const (
		idPID   = 1
		wExited = 0x4
		wNoWait = 0x1000000
	)
	var info [128]byte // siginfo_t, of which nothing is used
	for {
		pid := uintptr(cmd.Process.Pid)
		addr := uintptr(unsafe.Pointer(&info)) //nolint:gosec // info is as large as the kernel's siginfo_t
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idPID, pid, addr, wExited|wNoWait, 0, 0)
		if errno != syscall.EINTR {
			return
		}
	}
}
