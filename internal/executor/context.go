package executor

import (
	"crypto/sha256"
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
)

// ContextKey returns the name of a context that no other owner has one of: clients choose the ids of their contexts, so
// that two owners may have the same. It is a UUID, the same in every version, and says nothing of what it is made of.
// Agents keep their memory by it, so what is hashed must never change.
func ContextKey(tenant, owner, contextID string) string {
	h := sha256.New()
	for _, s := range []string{"a2ad context key", tenant, owner, contextID} { // each with its length: no two lists have the same bytes
		h.Write(append(strconv.AppendInt(nil, int64(len(s)), 10), ':'))
		h.Write([]byte(s))
	}
	var id a2a.ID
	copy(id[:], h.Sum(nil))
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8
	return id.String()
}
