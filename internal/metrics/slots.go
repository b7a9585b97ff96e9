package metrics

// describeSlots describes how many runs there may be, and the memory that they hold.
func (s *sources) describeSlots() {
	s.add("gauge", "a2ad_run_slots",
		"Runs that this process may have at once (A2AD_WORKERS).",
		nil, one(func() float64 { return float64(s.Slots) }))
	s.add("gauge", "a2ad_command_slots",
		"Runs of commands that this process may have at once (A2AD_COMMANDS).",
		nil, one(func() float64 { return float64(s.Pool.Load().Commands) }))
	s.add("gauge", "a2ad_command_slots_used",
		"Runs of commands in this process now.",
		nil, one(func() float64 { return float64(s.Pool.Load().BusyCommands) }))
	s.add("gauge", "a2ad_command_wait_seconds",
		"For how long tasks have waited for a slot for commands of this process; 0: none waits.",
		nil, one(func() float64 { return s.Pool.Load().Waiting.Seconds() }))
	s.add("gauge", "a2ad_run_held_bytes",
		"Size of the tasks that runs of this process hold in memory. If they are large, fewer run at once.",
		nil, one(func() float64 { return float64(s.Pool.Load().HeldBytes) }))
	s.add("counter", "a2ad_run_slot_seconds_total",
		"Seconds for which agents ran in the slots of this process, over all slots. Its rate divided by "+
			"a2ad_run_slots is the part of the slots that is in use: near 1, tasks wait for a free slot.",
		nil, one(func() float64 { return s.Pool.Load().Used.Seconds() }))
}
