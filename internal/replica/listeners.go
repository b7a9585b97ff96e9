package replica

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"syscall"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/config"
)

// listeners are all addresses at which the process answers, and its certificate.
type listeners struct {
	api   net.Listener
	grpc  net.Listener // nil when gRPC is off, or on the port of the API
	admin net.Listener // nil when it is off

	cert *auth.ServerCert // nil without TLS
}

func openListeners(cfg *config.Config) (_ *listeners, err error) {
	l := &listeners{}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.api, err = listen("A2AD_LISTEN", cfg.Listen); err != nil {
		return nil, err
	}
	if own := cfg.GRPCListen.Own(); own != "" {
		if l.grpc, err = listen("A2AD_GRPC_LISTEN", own); err != nil {
			return nil, err
		}
	}
	if cfg.AdminListen != "" {
		if l.admin, err = listen("A2AD_ADMIN_LISTEN", cfg.AdminListen); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// listen opens the listener of a setting. Its errors name the setting, and how to choose another port.
func listen(setting string, at config.Listen) (net.Listener, error) {
	l, err := net.Listen("tcp", string(at))
	if err == nil {
		return l, nil
	}
	flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(setting, "A2AD_")), "_", "-")
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: another process listens on %s: "+
			"stop it, or choose another port with %s HOST:PORT, or set %s", setting, at, flag, setting)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s: this user may not listen on %s: choose a port of at least 1024 with %s HOST:PORT",
			setting, at, flag)
	}
	return nil, fmt.Errorf("%s: %w", setting, err)
}

// openTLS reads the certificate, if there is one.
func (l *listeners) openTLS(cfg *config.Config, log *slog.Logger) (err error) {
	if cfg.TLSCert == "" {
		return nil
	}
	l.cert, err = auth.NewServerCert(cfg.TLSCert, cfg.TLSKey, cfg.TLSClientCA, func(err error) {
		log.Error("the certificate of the listeners is used unchanged", "err", err)
	})
	if err != nil {
		return fmt.Errorf("A2AD_TLS_CERT: %w", err)
	}
	return nil
}

// tls is what servers need, or nil.
func (l *listeners) tls() *tls.Config {
	if l.cert == nil {
		return nil
	}
	return l.cert.Config()
}

// all returns every open listener.
func (l *listeners) all() (open []net.Listener) {
	for _, one := range []net.Listener{l.api, l.grpc, l.admin} {
		if one != nil {
			open = append(open, one)
		}
	}
	return open
}

func (l *listeners) attrs() []any {
	attrs := []any{"api", l.api.Addr().String()}
	if l.admin != nil {
		attrs = append(attrs, "admin", l.admin.Addr().String())
	}
	return attrs
}

func (l *listeners) close() {
	for _, one := range l.all() {
		one.Close()
	}
}
