package main

import "github.com/a2ad/a2ad/internal/admin"

// What the commands print as JSON.
type (
	retriedTask = admin.RetriedTask
	treeRow     = admin.TreeTask
	stats       = admin.Stats
	statsTasks  = admin.StatsTasks
	tickRow     = admin.Tick
)
