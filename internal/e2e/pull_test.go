package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// remoteAgent returns the file of an agent with remote workers.
func remoteAgent(name string) string {
	return "name: " + name + "\ndescription: Has remote workers.\nexecutor: {pull: {}}\n"
}

// remoteRun is what a remote worker gets.
type remoteRun struct {
	TaskID, Traceparent string
	Epoch               int64
}

// claim claims a run for a remote worker, and waits for one for some seconds.
func (c *cluster) claim(a *replica, agent string, wait int) httpAnswer {
	c.t.Helper()
	return c.post(a, "/worker/v1/claim", fmt.Sprintf(`{"worker":"w","agents":[%q],"max":1,"waitSeconds":%d}`, agent,
		wait))
}

// claimed returns the run in the answer to a claim.
func (c *cluster) claimed(answer httpAnswer) remoteRun {
	c.t.Helper()
	var got struct{ Runs []remoteRun }
	if err := json.Unmarshal(answer.body, &got); err != nil || len(got.Runs) != 1 {
		c.t.Fatalf("claim: %d %s %v, want a run", answer.status, answer.body, err)
	}
	return got.Runs[0]
}

func (c *cluster) claimRun(a *replica, agent string) remoteRun {
	c.t.Helper()
	return c.claimed(c.claim(a, agent, 20))
}

func (c *cluster) finishRun(a *replica, run remoteRun, outcome string) {
	c.t.Helper()
	if answer := c.post(a, fmt.Sprintf("/worker/v1/runs/%s/%d/finish", run.TaskID, run.Epoch),
		`{"outcome":"`+outcome+`"}`); answer.status != http.StatusOK {
		c.t.Errorf("finish: %d %s", answer.status, answer.body)
	}
}
