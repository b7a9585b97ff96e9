package a2a

import (
	"encoding/hex"
	"errors"
	"log/slog"
)

// ID is a task id or an event uid: a UUID. Task ids are version 7, so that ids of the same time are neighbors
// in an index. Event uids are version 4, so that their first eight digits differ.
type ID [16]byte

var errBadID = errors.New("not a UUID")

// ParseID reads the form with 36 characters, with lower-case or upper-case digits. Any other text is an error;
// a request with such an id names a task that does not exist.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return ID{}, errBadID
	}
	i := 0
	for _, part := range [...]string{s[:8], s[9:13], s[14:18], s[19:23], s[24:]} {
		n, err := hex.Decode(id[i:], []byte(part))
		if err != nil {
			return ID{}, errBadID
		}
		i += n
	}
	return id, nil
}

// String returns the 36 character lower-case form.
func (id ID) String() string {
	var b [36]byte
	hex.Encode(b[:8], id[:4])
	b[8] = '-'
	hex.Encode(b[9:13], id[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], id[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], id[8:10])
	b[23] = '-'
	hex.Encode(b[24:], id[10:])
	return string(b[:])
}

// LogValue returns the text form, so that a log can be searched for it. Without it a JSON log shows sixteen
// numbers.
func (id ID) LogValue() slog.Value { return slog.StringValue(id.String()) }

// Short returns the first eight hex digits: the second half of an SSE id.
func (id ID) Short() string { return hex.EncodeToString(id[:4]) }

// IsZero reports whether id was never set.
func (id ID) IsZero() bool { return id == ID{} }
