//go:build !linux

package db

import (
	"syscall"
	"time"
)

// socketOptions does nothing here: only Linux has the option. Keepalives and the limits of boundConn must do.
func socketOptions(time.Duration) func(network, addr string, c syscall.RawConn) error { return nil }
