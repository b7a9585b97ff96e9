package store

// choreClass is the class of the advisory locks of maintenance jobs.
const choreClass = 0x61326164 // "a2ad"

// Maintenance jobs. One process at a time does each.
const (
	choreRescue   = 1
	choreWebhooks = 3
	choreRetire   = 4
	choreActions  = 5
	choreAttempts = 6
)
