package e2e_test

// sceneAgents has an agent that cannot be reached, and one whose task is parked and whose schedule has missed a tick. A
// cluster must end without tasks in progress, so the scene cancels them.
func sceneAgents(s *stage) {
	s.agent("away", "name: away\ndescription: Cannot be reached.\nexecutor: {http: {url: \"http://127.0.0.1:1/\"}}\n")
	s.agent("parks", scriptAgent("parks", "limits: {max_attempts: 1, on_exhausted: park}\n"))
	a := s.start("a", admin)
	before := a.scrape()
	var waiting []string
	for range 4 { // three in a row open the breaker
		waiting = append(waiting, submit(s.t, s.client(a, "away"), play(`{"op":"complete"}`)))
	}
	s.exec(`INSERT INTO a2a.schedule_ticks (agent, name, tick, outcome)
		VALUES ('parks', 'daily', clock_timestamp() - interval '1 h', 'missed')`)
	parked := submit(s.t, s.client(a, "parks"), play(`{"op":"error","times":9}`))
	s.shows(before, a, became(1, "a2ad_agent_unreachable", "agent", "away"),
		rose("a2ad_agent_breaker_state", "agent", "away"), rose("a2ad_agent_probes_total", "agent", "away"),
		became(1, "a2ad_tasks_parked", "agent", "parks"), became(1, "a2ad_schedule_ticks_missed", "agent", "parks"))
	for _, task := range waiting {
		if _, err := s.client(a, "away").Cancel(bounded(s.t), task); err != nil {
			s.t.Error(err)
		}
	}
	if _, err := s.client(a, "parks").Cancel(bounded(s.t), parked); err != nil {
		s.t.Error(err)
	}
}
