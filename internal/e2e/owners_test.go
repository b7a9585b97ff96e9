package e2e_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// apiKey creates a key with the program.
func (c *cluster) apiKey(tenant, owner, scopes string) string {
	c.t.Helper()
	binary, err := build()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(bounded(c.t), binary, "apikey", "create", "--tenant", tenant, "--owner", owner,
		"--scopes", scopes, "-o", "json")
	cmd.Env = []string{"A2AD_DATABASE_URL=" + c.url}
	out, err := cmd.Output()
	var made struct{ Key string }
	if err == nil {
		err = json.Unmarshal(out, &made)
	}
	if err != nil || made.Key == "" {
		c.t.Fatalf("apikey create: %v: %s", err, out)
	}
	return made.Key
}

// What a caller gets for a foreign task equals, byte for byte, what it gets for an unknown task.
func TestForeignTasksLookUnknown(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a", "A2AD_AUTH=required"), c.start("b", "A2AD_AUTH=required")
	ann := c.apiKey("acme", "ann", "tasks:read,tasks:write")
	others := map[string]string{
		"another owner":  c.apiKey("acme", "bob", "tasks:read,tasks:write"),
		"another tenant": c.apiKey("other", "ann", "tasks:read,tasks:write"),
	}
	mine := c.client(a, "script")
	mine.APIKey = ann
	m := play(`{"op":"input"}`)
	m.ContextID = "ctx"
	asked := send(t, mine, m)
	const unknown = "01a1f887-7fbd-72d5-a178-36d674819994"
	before := c.rows()
	for who, key := range others {
		signed := []string{"Authorization", "Bearer " + key}
		for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/resubscribe"} {
			for _, extra := range [][]string{nil, {"Last-Event-ID", "1-00000000"}} {
				header := append(signed[:2:2], extra...)
				foreign := c.post(b, "/agents/script", request(method, `{"id":"`+asked.TaskID+`"}`), header...)
				none := c.post(b, "/agents/script", request(method, `{"id":"`+unknown+`"}`), header...)
				if foreign.code != taskNotFound || foreign.status != none.status ||
					!bytes.Equal(foreign.body, none.body) {
					t.Errorf("%s of %s gets\n%s\nfor an unknown task\n%s", method, who, foreign.body, none.body)
				}
			}
		}
		for _, method := range []string{"message/send", "message/stream"} {
			to := func(id string) httpAnswer {
				return c.post(a, "/agents/script",
					strings.Replace(message(`,"taskId":"`+id+`"`), "message/send", method, 1), signed...)
			}
			if foreign, none := to(asked.TaskID), to(unknown); foreign.code != taskNotFound ||
				!bytes.Equal(foreign.body, none.body) {
				t.Errorf("%s by %s gets\n%s\nfor an unknown task\n%s", method, who, foreign.body, none.body)
			}
		}
		list := c.client(b, "script")
		list.APIKey = key
		page, err := list.List(bounded(t), client.ListParams{ContextID: "ctx"})
		if err != nil || page.Total != 0 || len(page.Tasks) != 0 {
			t.Errorf("%s lists %d tasks, %v, want none", who, page.Total, err)
		}
	}
	if after := c.rows(); after != before {
		t.Errorf("strangers left %d rows", after-before)
	}
	for _, header := range [][]string{nil, {"Authorization", "Bearer nope"}, {"Authorization", "Basic eDp5"},
		{"X-API-Key", ann + "x"}} {
		got := c.post(a, "/agents/script", request("tasks/get", `{"id":"`+asked.TaskID+`"}`), header...)
		if got.status != 401 || got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("signed in with %v: %d %s", header, got.status, got.body)
		}
	}
	reader := c.apiKey("acme", "ann", "tasks:read")
	if got := c.post(a, "/agents/script", message(""), "X-API-Key", reader); got.status != 403 {
		t.Errorf("a send with the read scope only: %d %s", got.status, got.body)
	}
	if got := c.post(a, "/agents/script", request("tasks/get", `{"id":"`+asked.TaskID+`"}`), "X-API-Key",
		reader); got.code != 0 || got.status != 200 {
		t.Errorf("a read by the owner with another key: %d %s", got.status, got.body)
	}
	c.key = ann // the tasks that are read again at the end are ann's
	end := send(t, mine, reply(asked.TaskID, "done"))
	if end.State != a2a.StateCompleted {
		t.Errorf("got %s", end.Raw)
	}
	for _, r := range []*replica{a, b} {
		for _, secret := range append([]string{ann, reader}, others["another owner"], others["another tenant"]) {
			if strings.Contains(r.log.all(), secret) {
				t.Errorf("a key is in the log of %s", r.name)
			}
		}
	}
}

// An agent that keys its memory by contextKey never mixes up two owners, even if they use the same context id. One
// owner's context has the same key in every task and at every replica.
func TestAgentsCanDistinguishOwners(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.mixed = true
	c.agent("told",
		"name: told\ndescription: Says what it is told of its owner.\nskills: [{id: s, name: S, description: S, "+
			"tags: [test]}]\nexecutor: {exec: {command: [/usr/bin/sed, "+
			"'s/.*\"contextKey\":\"\\([^\"]*\\)\",\"tenant\":\"\\([^\"]*\\)\",\"owner\":\"\\([^\"]*\\)\".*/\\1 "+
			"\\2 \\3/'], output: text}}\n")
	replicas := []*replica{c.start("a", "A2AD_AUTH=required"), c.start("b", "A2AD_AUTH=required")}
	seen := map[string]string{}
	for _, who := range [][2]string{{"acme", "ann"}, {"acme", "bob"}, {"corp", "ann"}} {
		key := c.apiKey(who[0], who[1], "tasks:read,tasks:write")
		for _, r := range replicas {
			answer := c.post(r, "/agents/told", message(`,"contextId":"shared"`), "X-API-Key", key)
			var got struct {
				Result struct {
					ContextID string
					Artifacts []struct{ Parts []struct{ Text string } }
				}
			}
			if err := json.Unmarshal(answer.body, &got); err != nil || len(got.Result.Artifacts) != 1 ||
				got.Result.ContextID != "shared" {
				t.Fatalf("%v: %d %s", err, answer.status, answer.body)
			}
			words := strings.Fields(got.Result.Artifacts[0].Parts[0].Text)
			if len(words) != 3 || words[1] != who[0] || words[2] != who[1] {
				t.Fatalf("the agent gets %q", words)
			}
			if other, ok := seen[words[0]]; ok && other != who[0]+"/"+who[1] {
				t.Errorf("%v and %s are the same to the agent", who, other)
			}
			seen[words[0]] = who[0] + "/" + who[1]
		}
	}
	if len(seen) != 3 {
		t.Errorf("three owners have the keys %v", seen)
	}
}
