package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// pulledAgent is the file of an agent whose workers are elsewhere.
func pulledAgent(name string) string {
	return "name: " + name + "\ndescription: Is worked for from afar.\nexecutor: {pull: {}}\n"
}

// pulledRun is what a worker that pulls is given.
type pulledRun struct {
	TaskID, Traceparent string
	Epoch               int64
}

// claim asks for a run of an agent that is pulled, and waits for one for some seconds.
func (c *cluster) claim(a *replica, agent string, wait int) httpAnswer {
	c.t.Helper()
	return c.post(a, "/worker/v1/claim", fmt.Sprintf(`{"worker":"w","agents":[%q],"max":1,"waitSeconds":%d}`, agent,
		wait))
}

// claimed returns the run that a claim was answered with.
func (c *cluster) claimed(answer httpAnswer) pulledRun {
	c.t.Helper()
	var got struct{ Runs []pulledRun }
	if err := json.Unmarshal(answer.body, &got); err != nil || len(got.Runs) != 1 {
		c.t.Fatalf("claim: %d %s %v, want a run", answer.status, answer.body, err)
	}
	return got.Runs[0]
}

func (c *cluster) claimRun(a *replica, agent string) pulledRun {
	c.t.Helper()
	return c.claimed(c.claim(a, agent, 20))
}

func (c *cluster) finishRun(a *replica, run pulledRun, outcome string) {
	c.t.Helper()
	if answer := c.post(a, fmt.Sprintf("/worker/v1/runs/%s/%d/finish", run.TaskID, run.Epoch),
		`{"outcome":"`+outcome+`"}`); answer.status != http.StatusOK {
		c.t.Errorf("finish: %d %s", answer.status, answer.body)
	}
}
