package decode

import (
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// Enum reads a value of an enumeration by its name or number, and returns its number, or -1 for
// anything else.
func Enum(v []byte, names []string) int {
	if n, ok := rawjson.Int(v); ok && n >= 0 && n < int64(len(names)) {
		return int(n)
	}
	for n, name := range names {
		if len(v) == len(name)+2 && string(v[1:len(v)-1]) == name {
			return n // the usual spelling, which needs no copy
		}
	}
	name, ok := rawjson.String(v)
	if !ok {
		return -1
	}
	return slices.Index(names, name)
}

var roleNames = []string{"ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"}

// Role reads a role by its ProtoJSON name. It accepts both, as the official servers do: a client
// may pass on what another agent said.
func (r *Reader) Role(v []byte) a2a.Role {
	r.Need("role", v)
	switch Enum(v, roleNames) {
	case 1:
		return a2a.RoleUser
	case 2:
		return a2a.RoleAgent
	}
	r.Fail("role", "must be ROLE_USER or ROLE_AGENT")
	return 0
}
