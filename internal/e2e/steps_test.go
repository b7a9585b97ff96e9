package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
)

// report sends events of a remote worker's run, and returns the answer.
func (c *cluster) report(a *replica, run remoteRun, events ...string) httpAnswer {
	c.t.Helper()
	return c.post(a, fmt.Sprintf("/worker/v1/runs/%s/%d/events", run.TaskID, run.Epoch),
		`{"events":[`+strings.Join(events, ",")+`]}`)
}

// reported is report of events that must be accepted.
func (c *cluster) reported(a *replica, run remoteRun, events ...string) {
	c.t.Helper()
	if answer := c.report(a, run, events...); answer.status != http.StatusOK {
		c.t.Fatalf("report events: %d %s", answer.status, answer.body)
	}
}

// busyWithSteps records a step and a wait of the agent far.
func (c *cluster) busyWithSteps(a *replica) {
	c.t.Helper()
	submit(c.t, c.client(a, "far"), say("x"))
	c.reported(a, c.claimRun(a, "far"), `{"step":{"key":"a","result":1}}`, `{"wait":{"for":"1ms"}}`)
	c.finishRun(a, c.claimRun(a, "far"), "done")
}

// sceneSteps has remote workers that record steps and waits of every kind.
func sceneSteps(s *stage) {
	s.agent("far", remoteAgent("far")+"limits: {deadline: 1h}\n")
	a := s.start("a", admin)
	before := a.scrape()
	about := func(more ...string) []string { return append([]string{"agent", "far"}, more...) }
	begin := func(events ...string) string {
		submit(s.t, s.client(a, "far"), say("x"))
		run := s.claimRun(a, "far")
		s.reported(a, run, events...)
		return run.TaskID
	}
	begin(`{"step":{"key":"a","result":1}}`, `{"step":{"key":"b","error":"busy","nextAt":"2100-01-01T00:00:00Z"}}`,
		`{"step":{"key":"c","error":"no"}}`, `{"wait":{"for":"1ms"}}`)
	run := s.claimRun(a, "far") // its wait is over
	s.reported(a, run, `{"usage":{"model":"m","inputTokens":9,"outputTokens":8,"cachedInputTokens":7,`+
		`"reasoningTokens":6,"requests":5}}`)
	s.finishRun(a, run, "done")
	s.shows(before, a, grew(9, "a2ad_usage_tokens_total", about("kind", "input")...),
		grew(8, "a2ad_usage_tokens_total", about("kind", "output")...),
		grew(7, "a2ad_usage_tokens_total", about("kind", "cached_input")...),
		grew(6, "a2ad_usage_tokens_total", about("kind", "reasoning")...),
		grew(5, "a2ad_usage_requests_total", about()...),
		grew(1, "a2ad_steps_total", about("result", "ok")...),
		grew(1, "a2ad_steps_total", about("result", "retry")...),
		grew(1, "a2ad_steps_total", about("result", "failed")...),
		grew(1, "a2ad_waits_begun_total", about()...), grew(1, "a2ad_waits_ended_total", about("by", "time")...))

	before = a.scrape()
	parent := begin(`{"call":{"key":"c","agent":"far","message":{"parts":[{"text":"y"}]}}}`, `{"wait":{"tasks":["c"]}}`)
	s.finishRun(a, s.claimRun(a, "far"), "done")
	again := s.claimRun(a, "far")
	s.finishRun(a, again, "done")
	if again.TaskID != parent {
		s.t.Errorf("task %s continues after the end of the called task, want %s", again.TaskID, parent)
	}
	s.shows(before, a, grew(1, "a2ad_waits_ended_total", about("by", "tasks")...))

	before = a.scrape()
	answered, signaled := begin(`{"wait":{"message":true}}`), begin(`{"wait":{"signal":"go"}}`)
	canceled, overdue := begin(`{"wait":{"for":"1h"}}`), begin(`{"wait":{"for":"1h"}}`)
	begin(`{"wait":{"for":"1h"}}`)
	asked := begin(`{"wait":{"message":true,"status":{"state":"TASK_STATE_INPUT_REQUIRED"}}}`)
	s.shows(before, a, grew(6, "a2ad_waits_begun_total", about()...))
	for _, task := range []string{answered, asked} {
		more := say("y")
		more.TaskID = task
		submit(s.t, s.client(a, "far"), more)
	}
	if answer := s.post(a, "/worker/v1/tasks/"+signaled+"/signals/go", `{"value":1}`); answer.status != http.StatusOK {
		s.t.Errorf("signal: %d %s", answer.status, answer.body)
	}
	if _, err := s.client(a, "far").Cancel(bounded(s.t), canceled); err != nil {
		s.t.Error(err)
	}
	s.exec(`UPDATE a2a.task_waits SET deadline_at = clock_timestamp() WHERE task_id::text = $1`, overdue)
	s.shows(before, a, grew(2, "a2ad_waits_ended_total", about("by", "message")...),
		grew(1, "a2ad_waits_ended_total", about("by", "signal")...),
		grew(1, "a2ad_waits_ended_total", about("by", "cancel")...),
		grew(1, "a2ad_waits_ended_total", about("by", "deadline")...))

	// The gauge is read again after 15 s, so another replica reads it first.
	b := s.start("b", admin)
	s.shows(unseen, b, became(1, "a2ad_tasks_waiting", about()...))
	for _, task := range column[string](s.cluster, `SELECT id::text FROM audit.task WHERE state = 'WORKING'
		OR state = 'SUBMITTED'`) {
		if _, err := s.client(a, "far").Cancel(bounded(s.t), task); err != nil {
			s.t.Error(err)
		}
	}
}
