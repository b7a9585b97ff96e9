package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/a2ad/a2ad/internal/config"
)

// listen opens the listener that a setting names. The error names the setting, and the flag that takes another port.
func listen(setting string, at config.Listen) (net.Listener, error) {
	l, err := net.Listen("tcp", string(at))
	if err == nil {
		return l, nil
	}
	flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(setting, "A2AD_")), "_", "-")
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: another process listens on %s: stop it, or choose another port with %s HOST:PORT", setting, at, flag)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s: this user may not listen on %s: choose a port from 1024 on with %s HOST:PORT", setting, at, flag)
	}
	return nil, fmt.Errorf("%s: %w", setting, err)
}
