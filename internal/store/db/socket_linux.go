package db

import (
	"strings"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not name.
const tcpUserTimeout = 18

// socketOptions bounds how long what was sent may stay without an acknowledgment of the other machine's kernel. Without
// it the kernel sends again for a quarter of an hour.
func socketOptions(packet time.Duration) func(network, addr string, c syscall.RawConn) error {
	return func(network, _ string, c syscall.RawConn) error {
		if !strings.HasPrefix(network, "tcp") {
			return nil
		}
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(packet.Milliseconds()))
		})
		if err != nil {
			return err
		}
		return failed
	}
}
