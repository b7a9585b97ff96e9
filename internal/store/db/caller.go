package db

import (
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Caller says whose data a method may read or change.
type Caller struct {
	Tenant, Owner string
	Shared        bool   // tasks of other owners of the tenant count as the caller's
	Actor         string // the name in the audit log, for example "key <id>"
}

// settings are those that the row policies read. tasks are those whose rows a statement reads.
func (c Caller) settings(tasks ...a2a.ID) []any {
	sharing := "owner"
	if c.Shared {
		sharing = "tenant"
	}
	if len(tasks) == 0 {
		return []any{c.Tenant, c.Owner, sharing, ""}
	}
	ids := make([]string, len(tasks))
	for i, id := range tasks {
		ids[i] = id.String()
	}
	return []any{c.Tenant, c.Owner, sharing, "{" + strings.Join(ids, ",") + "}"}
}
