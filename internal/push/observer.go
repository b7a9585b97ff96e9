package push

import (
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"sync"
)

// observer notes what happens to the connection of one attempt. A dial may continue when its attempt has ended.
type observer struct {
	mu        sync.Mutex
	address   string // guarded by mu; of the last connection, or of the last try to connect
	tlsFailed bool   // guarded by mu; the last handshake
	answering bool   // guarded by mu; the receiver has begun to answer
	fenced    bool   // guarded by mu; a write was refused because the lease had expired
}

// observe returns leaseValid, and notes when it returns false.
func (o *observer) observe(leaseValid func() bool) func() bool {
	if leaseValid == nil {
		return nil
	}
	return func() bool {
		valid := leaseValid()
		if !valid {
			o.set(func() { o.fenced = true })
		}
		return valid
	}
}

func (o *observer) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		ConnectStart: func(_, address string) { o.set(func() { o.address = address }) },
		GotConn:      func(i httptrace.GotConnInfo) { o.set(func() { o.address = i.Conn.RemoteAddr().String() }) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			o.set(func() { o.tlsFailed = err != nil })
		},
		GotFirstResponseByte: func() { o.set(func() { o.answering = true }) },
	}
}

func (o *observer) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

func (o *observer) remoteIP() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	host, _, err := net.SplitHostPort(o.address)
	if err != nil {
		return ""
	}
	return host
}

func (o *observer) wasFenced() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fenced
}

func (o *observer) failedTLS() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tlsFailed
}

func (o *observer) wasAnswering() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.answering
}
