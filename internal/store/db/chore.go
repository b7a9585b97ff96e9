package db

// choreClass is the class of the advisory locks of maintenance jobs.
const choreClass = 0x61326164 // "a2ad"

// Maintenance jobs. One process at a time does each.
const (
	ChoreRescue   = 1
	ChoreWebhooks = 3
	ChoreRetire   = 4
	ChoreActions  = 5
	ChoreAttempts = 6
	ChoreParked   = 7
	ChoreTicks    = 8
	ChoreWorkers  = 9
	ChoreCalls    = 10
	ChoreUsage    = 11
	ChoreJobs     = 12
)
