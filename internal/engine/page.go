package engine

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// pageSealer makes page tokens: encrypted positions in a list, valid only for the caller and the
// filter that they were made for.
type pageSealer struct {
	gcm cipher.AEAD
	max int // bytes of a token
}

func newPageSealer(key []byte, limit int) (*pageSealer, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("page token key: %w", err)
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("page token key: %w", err)
	}
	return &pageSealer{gcm, limit}, nil
}

const positionSize = 8 + 16

// bound returns what a token is valid for. The members are quoted, so that no two lists look alike.
func bound(c db.Caller, f *tasks.Filter) []byte {
	return []byte(strings.Join([]string{
		"page", strconv.Quote(c.Tenant), strconv.Quote(c.Owner), strconv.Quote(f.Agent), strconv.Quote(f.ContextID),
		f.State.String(), strconv.FormatInt(f.Since.UnixMicro(), 10),
	}, "|"))
}

// boundPush does the same for the webhooks of a task.
func boundPush(c db.Caller, task a2a.ID) []byte {
	return []byte(strings.Join([]string{"push", strconv.Quote(c.Tenant), strconv.Quote(c.Owner), task.String()}, "|"))
}

func (p *pageSealer) seal(pos tasks.Position, bound []byte) string {
	plain := binary.BigEndian.AppendUint64(nil, uint64(pos.At.UnixMicro()))
	plain = append(plain, pos.ID[:]...)
	return base64.RawURLEncoding.EncodeToString(p.gcm.Seal(nil, nil, plain, bound))
}

var errBadToken = a2a.InvalidParams("pageToken", "not a page token of this list")

func (p *pageSealer) open(token string, bound []byte) (pos tasks.Position, err error) {
	if len(token) > p.max {
		return pos, errBadToken
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || strings.ContainsAny(token, "\r\n") { // the decoder ignores these
		return pos, errBadToken
	}
	plain, err := p.gcm.Open(nil, nil, sealed, bound)
	if err != nil || len(plain) != positionSize {
		return pos, errBadToken
	}
	pos.At = time.UnixMicro(int64(binary.BigEndian.Uint64(plain))).UTC()
	copy(pos.ID[:], plain[8:])
	return pos, nil
}
