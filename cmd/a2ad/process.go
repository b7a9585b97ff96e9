package main

import (
	"context"
	"os"
	"time"
)

// outlive returns a context that ends with the cause of ctx, some time later, or when stop is called.
func outlive(ctx context.Context, by time.Duration) (later context.Context, stop context.CancelFunc) {
	later, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
		case <-later.Done():
			return
		}
		timer := time.NewTimer(by)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(context.Cause(ctx))
		case <-later.Done():
		}
	}()
	return later, func() {
		cancel(context.Canceled)
		<-done
	}
}

// hasTerminal reports whether the process belongs to a terminal that is still open.
func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	tty.Close()
	return true
}

// inContainer reports whether this process runs in a container of Docker, Podman or Kubernetes.
func inContainer() bool {
	for _, file := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(file); err == nil {
			return true
		}
	}
	return os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}
