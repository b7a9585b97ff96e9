//go:build !linux

package conformance_test

import "syscall"

func childAttr() *syscall.SysProcAttr { return nil }
