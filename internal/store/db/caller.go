package db

// Caller says whose data a method may read or change.
type Caller struct {
	Tenant, Owner string
	Shared        bool   // tasks of other owners of the tenant count as the caller's
	Actor         string // the name in the audit log, for example "key <id>"
}

// settings are those that the row policies read.
func (c Caller) settings() []any {
	sharing := "owner"
	if c.Shared {
		sharing = "tenant"
	}
	return []any{c.Tenant, c.Owner, sharing}
}
