package db

// Caller is whose data a method may touch.
type Caller struct {
	Tenant, Owner string
	Shared        bool   // what others of the tenant own counts as the caller's
	Actor         string // who this is to the audit log, "key <id>" say
}

// settings are those that the row policies go by.
func (c Caller) settings() []any {
	sharing := "owner"
	if c.Shared {
		sharing = "tenant"
	}
	return []any{c.Tenant, c.Owner, sharing}
}
