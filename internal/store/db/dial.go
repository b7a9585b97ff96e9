package db

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// answerGrace is how long after the end of the longest statement its answer, or the error by which the server ended
	// it, is still waited for.
	answerGrace = time.Second
	// lastWords bounds what the driver does with a connection that it gives up: cancel the statement and say goodbye.
	// Meanwhile the connection counts in the pool.
	lastWords = 2 * time.Second
	// pingWait is how long a connection may take to prove that it is alive.
	pingWait = 2 * time.Second
)

// dialer makes the connections of one pool. Everything a pool does goes through them, so the bounds set here hold for
// every statement, also for those that set none of their own: a connection from which nothing was heard for limit is
// closed.
type dialer struct {
	limit  time.Duration // 0: the silence of a connection is not bounded
	packet time.Duration // wait for the other machine to acknowledge what was sent; see socketOptions
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	lost   func(silent bool) // called for connections that broke or fell silent; must not block

	heard atomic.Int64 // when anything was last read from any connection, in nanoseconds by the local clock
}

func newDialer(limit, packet time.Duration, lost func(silent bool)) *dialer {
	d := &net.Dialer{KeepAliveConfig: keepAlive(packet), Control: socketOptions(packet)}
	return &dialer{limit: limit, packet: packet, dial: d.DialContext, lost: lost}
}

// keepAlive finds out within about packet that the other machine is gone while nothing is sent.
func keepAlive(packet time.Duration) net.KeepAliveConfig {
	const probes = 3
	each := max(packet/(2*probes), time.Second) // the kernel counts in seconds
	return net.KeepAliveConfig{Enable: true, Idle: max(packet/2, time.Second), Interval: each, Count: probes}
}

// What the driver dials to cancel a statement, it dials at the address that its connection gives as the remote one. By
// the name of the network such requests are told from new connections, and those on behalf of a silent connection can
// be refused at once.
const (
	cancelPrefix = "cancel of "
	silentPrefix = "silent "
)

var errSilent = errors.New("the connection to the database fell silent")

// DialContext has the form of pgconn.DialFunc.
func (d *dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if strings.HasPrefix(network, silentPrefix) {
		return nil, errSilent
	}
	if network, ok := strings.CutPrefix(network, cancelPrefix); ok {
		ctx, cancel := context.WithTimeout(ctx, lastWords/2)
		defer cancel()
		conn, err := d.dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return conn, errors.Join(conn.SetDeadline(time.Now().Add(lastWords / 2)))
	}
	conn, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &boundConn{Conn: conn, dialer: d, network: network, addr: addr}, nil
}

// boundConn is a connection that is closed when an answer takes too long.
type boundConn struct {
	net.Conn
	dialer        *dialer
	network, addr string // what was dialed
	silent        atomic.Bool

	mu     sync.Mutex
	longer time.Duration // guarded by mu; how long a statement may take that takes longer than others, or zero
	driver time.Time     // guarded by mu; the driver's own deadline, or zero
	until  [2]time.Time  // guarded by mu; how long the read and the write under way may take, or zero
}

const (
	reading = iota
	writing
)

// RemoteAddr is where the driver sends its cancel requests.
func (c *boundConn) RemoteAddr() net.Addr {
	a := address{cancelPrefix + c.network, c.addr}
	if remote := c.Conn.RemoteAddr(); c.network != "unix" && remote != nil {
		a.addr = remote.String() // the name may belong to another machine now
	}
	if c.silent.Load() {
		a.network = silentPrefix + c.network
	}
	return a
}

type address struct{ network, addr string }

func (a address) Network() string { return a.network }
func (a address) String() string  { return a.addr }

// SetDeadline takes the driver's deadline. The driver sets one when a context has ended, or when it gives the
// connection up: either way it is not worth waiting for longer than lastWords.
func (c *boundConn) SetDeadline(t time.Time) error {
	if soon := time.Now().Add(lastWords); c.dialer.limit > 0 && t.After(soon) {
		t = soon
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.driver = t
	return errors.Join(c.arm(reading), c.arm(writing))
}

// SetReadDeadline and SetWriteDeadline are not used by the driver; TLS sets the second one when it says goodbye.
func (c *boundConn) SetReadDeadline(t time.Time) error  { return c.SetDeadline(t) }
func (c *boundConn) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }

// arm sets the earlier of the driver's deadline and our own. The caller holds mu.
func (c *boundConn) arm(what int) error {
	t := c.driver
	if own := c.until[what]; !own.IsZero() && (t.IsZero() || own.Before(t)) {
		t = own
	}
	if what == reading {
		return c.Conn.SetReadDeadline(t)
	}
	return c.Conn.SetWriteDeadline(t)
}

func (c *boundConn) begin(what int) error {
	if c.dialer.limit == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until[what] = time.Now().Add(max(c.dialer.limit, c.longer))
	return c.arm(what)
}

// allowSilence lets the statements of a connection take up to limit, until the function that it returns is called.
func allowSilence(conn *pgx.Conn, limit time.Duration) (no func()) {
	raw := conn.PgConn().Conn()
	if t, ok := raw.(*tls.Conn); ok {
		raw = t.NetConn()
	}
	c, ok := raw.(*boundConn)
	if !ok {
		return func() {}
	}
	set := func(longer time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.longer = longer
	}
	set(limit + answerGrace)
	return func() { set(0) }
}

func (c *boundConn) Read(b []byte) (int, error) {
	if err := c.begin(reading); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.dialer.heard.Store(time.Now().UnixNano())
	}
	return n, c.failed(reading, err)
}

func (c *boundConn) Write(b []byte) (int, error) {
	if err := c.begin(writing); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	return n, c.failed(writing, err)
}

// failed closes a connection whose answer took too long, so that nothing waits for it any more, and the pool can
// replace it at once.
func (c *boundConn) failed(what int, err error) error {
	if err == nil || errors.Is(err, net.ErrClosed) {
		return err
	}
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		c.dialer.lost(false)
		return err
	}
	if c.dialer.limit == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return err // a wait of the listener, which goes on
	}
	c.mu.Lock()
	own := c.until[what]
	c.mu.Unlock()
	driver := errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(own)
	if !c.silent.Swap(true) {
		c.Conn.Close()
		c.dialer.lost(!driver)
	}
	if driver {
		return err // by it the driver tells which context has ended
	}
	return fmt.Errorf("%w: %v", errSilent, err) //nolint:errorlint // the driver must not see its own timeout in it
}
