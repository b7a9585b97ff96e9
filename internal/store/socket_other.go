//go:build !linux

package store

import (
	"syscall"
	"time"
)

// socketOptions is for Linux: elsewhere keepalives and the bounds of boundConn have to do.
func socketOptions(time.Duration) func(network, addr string, c syscall.RawConn) error { return nil }
