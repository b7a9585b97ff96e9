package exec

import (
	osexec "os/exec"
	"syscall"
	"unsafe"
)

// awaitExit returns when the command has ended and leaves it to be reaped, so that its
// id, which is that of its group, stays taken.
func awaitExit(cmd *osexec.Cmd) {
	const (
		idPID   = 1
		wExited = 0x4
		wNoWait = 0x1000000
	)
	var info [128]byte // siginfo_t, of which nothing is used
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idPID, uintptr(cmd.Process.Pid), uintptr(unsafe.Pointer(&info)), wExited|wNoWait, 0, 0) //nolint:gosec // info is as large as the kernel's siginfo_t
		if errno != syscall.EINTR {
			return
		}
	}
}
