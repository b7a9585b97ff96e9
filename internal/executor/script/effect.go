package script

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/rawjson"
)

const effectTimeout = time.Minute

var errAddress = errors.New("an effect may not be sent to this address")

// newClient returns a client that checks the address that it dials, after the name was resolved. It uses no proxy,
// because the check would then see the proxy's address, and follows no redirect. It keeps no connections, because an
// Executor has no method that would close them.
func newClient(allow func(netip.Addr) bool) *http.Client {
	dialer := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return errAddress
		}
		if a := ap.Addr().Unmap(); allow == nil || !allow(a) {
			return fmt.Errorf("%w: %s", errAddress, a)
		}
		return nil
	}}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, DisableKeepAlives: true, TLSHandshakeTimeout: effectTimeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       effectTimeout,
	}
}

// effect sends a POST that shows that this op was executed. It returns a permanent error for an address that is not
// permitted; after any other error the run is retried.
func (p *player) effect(ctx context.Context, o *op) error {
	b := append([]byte(`{"task":"`), p.run.Task.ID.String()...)
	b = strconv.AppendInt(append(b, `","epoch":`...), p.run.Epoch, 10)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(p.run.Attempt), 10)
	b = strconv.AppendInt(append(b, `,"step":`...), int64(p.at.Op), 10)
	b = rawjson.AppendString(append(b, `,"key":`...), o.key)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url, bytes.NewReader(append(b, '}')))
	if err != nil {
		return executor.Permanent(fmt.Errorf("script[%d]: %w", p.at.Op, err))
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.executor.client.Do(req)
	if errors.Is(err, errAddress) {
		return executor.Permanent(fmt.Errorf("script[%d]: %w", p.at.Op, err))
	}
	if err != nil {
		return fmt.Errorf("script[%d]: %w", p.at.Op, err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)); err != nil {
		return fmt.Errorf("script[%d]: read the answer: %w", p.at.Op, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("script[%d]: %s answered %s", p.at.Op, o.url, resp.Status)
	}
	return nil
}
