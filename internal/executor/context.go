package executor

import (
	"crypto/sha256"
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
)

// ContextKey returns a name for a context that is unique over all owners. Clients choose the ids of their contexts,
// so two owners may choose the same. The key is a UUID, the same in every version, and does not reveal the values
// that it is made of. Agents store their memory under it, so the hashed values must never change.
func ContextKey(tenant, owner, contextID string) string {
	h := sha256.New()
	for _, s := range []string{"a2ad context key", tenant, owner, contextID} {
		h.Write(append(strconv.AppendInt(nil, int64(len(s)), 10), ':')) // so no two lists have the same bytes
		h.Write([]byte(s))
	}
	var id a2a.ID
	copy(id[:], h.Sum(nil))
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8
	return id.String()
}
