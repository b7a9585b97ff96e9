package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The agents outside the process are this test binary, started as a command or as a web server. A message "N MS"
// makes them report N chunks of artifact a, MS milliseconds apart, each with a checkpoint. "flood" makes them report
// without end. They record what they do in a journal file.
const (
	agentMode    = "A2AD_TEST_AGENT" // exec or http
	agentJournal = "A2AD_TEST_JOURNAL"
	agentAddr    = "A2AD_TEST_ADDR"
)

// action is a line of the journal.
type action struct {
	What    string // run, gone or cancel
	Task    string
	Epoch   int64
	Attempt int
	From    int // the first chunk that it reports
	PID     int
	Reason  string
}

type agentRun struct {
	TaskID     string
	Epoch      int64
	Attempt    int
	Messages   []struct{ Parts []struct{ Text string } }
	Checkpoint struct{ N int }
	Reason     string
	Steps      []agentStep
}

// agentStep is a recorded step of a run.
type agentStep struct {
	Key, Kind, EndedAt string
	Result             struct{ By, State string }
}

func agentMain(mode string) int {
	if mode == "exec" {
		var run agentRun
		if err := json.NewDecoder(os.Stdin).Decode(&run); err != nil {
			return 2
		}
		out := bufio.NewWriter(os.Stdout)
		if err := run.perform(out, out.Flush); err != nil {
			return 3
		}
		return 0
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	err := http.ListenAndServe(os.Getenv(agentAddr), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var run agentRun
		if err := json.NewDecoder(r.Body).Decode(&run); err != nil || r.ContentLength <= 0 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/cancel" {
			enter(action{What: "cancel", Task: run.TaskID, Epoch: run.Epoch, Attempt: run.Attempt, Reason: run.Reason})
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		flush := http.NewResponseController(w).Flush
		if err := run.perform(w, func() error {
			if err := r.Context().Err(); err != nil {
				return err
			}
			return flush()
		}); err != nil {
			enter(action{What: "gone", Task: run.TaskID, Epoch: run.Epoch, Attempt: run.Attempt})
		}
	}))
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// enter writes a line into the journal. It is one write, so that lines of several processes do not mix.
func enter(d action) {
	line, err := json.Marshal(d)
	if err != nil {
		panic(err)
	}
	f, err := os.OpenFile(os.Getenv(agentJournal), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

func (run *agentRun) perform(w io.Writer, flush func() error) error {
	enter(action{What: "run", Task: run.TaskID, Epoch: run.Epoch, Attempt: run.Attempt, From: run.Checkpoint.N,
		PID: os.Getpid()})
	if run.Messages[0].Parts[0].Text == "flood" {
		return flood(w)
	}
	count, every, _ := strings.Cut(run.Messages[0].Parts[0].Text, " ")
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	ms, err := strconv.Atoi(every)
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Duration(max(ms, 1)) * time.Millisecond)
	defer tick.Stop()
	for k := run.Checkpoint.N; k < n; k++ {
		fmt.Fprintf(w, "{\"checkpoint\":{\"n\":%d}}\n", k+1)
		fmt.Fprintf(w,
			`{"artifactUpdate":{"artifact":{"artifactId":"a","parts":[{"text":%q}]},"append":%t,"lastChunk":%t}}`+"\n",
			chunkText("a", k), k > 0, k == n-1)
		if err := flush(); err != nil {
			return err
		}
		<-tick.C
	}
	fmt.Fprintln(w, `{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}`)
	return flush()
}

func flood(w io.Writer) error {
	line := []byte(`{"artifactUpdate":{"artifact":{"artifactId":"a","parts":[{"text":"` + strings.Repeat("x", 1000) +
		`"}]},"append":true}}` + "\n")
	for {
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
}

// outsideAgents is the test's side of the agents outside the process.
type outsideAgents struct {
	t       *testing.T
	journal string
	addr    string
	cmd     *exec.Cmd // the web server that is running
}

// outside adds the agents "web" and "command" to a cluster, and starts the web server.
func (c *cluster) outside() *outsideAgents {
	c.t.Helper()
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	f := &outsideAgents{t: c.t, journal: filepath.Join(c.t.TempDir(), "journal"), addr: l.Addr().String()}
	l.Close()
	const more = "limits: {max_attempts: 30, backoff: {base: 50ms, max: 200ms}}\n"
	for name, executor := range map[string]string{
		"web": fmt.Sprintf("http: {url: http://%s/run, cancel_url: http://%s/cancel}", f.addr, f.addr),
		"command": fmt.Sprintf("exec: {command: [%q], env: {%s: exec, %s: %q}}", self, agentMode, agentJournal,
			f.journal),
	} {
		c.agent(name, fmt.Sprintf("name: %s\ndescription: Counts.\nexecutor: {%s}\n%s", name, executor, more))
	}
	f.start()
	c.t.Cleanup(f.kill)
	return f
}

func (f *outsideAgents) start() {
	f.t.Helper()
	self, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	f.cmd = exec.Command(self)
	f.cmd.Env = append(os.Environ(), agentMode+"=http", agentJournal+"="+f.journal, agentAddr+"="+f.addr)
	f.cmd.Stderr = os.Stderr
	if _, err := f.cmd.StdinPipe(); err != nil { // the agent ends when this end of the pipe closes
		f.t.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	until(f.t, "the agent listens", func() bool {
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", f.addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

func (f *outsideAgents) kill() {
	if f.cmd.ProcessState == nil {
		_ = f.cmd.Process.Kill()
		_ = f.cmd.Wait()
	}
}

// actions returns what the agents did for a task.
func (f *outsideAgents) actions(what, task string) (list []action) {
	f.t.Helper()
	text, err := os.ReadFile(f.journal)
	if err != nil {
		f.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var d action
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			f.t.Fatal(err)
		}
		if d.What == what && d.Task == task {
			list = append(list, d)
		}
	}
	return list
}

// checkRuns compares the executions of a task with the recorded attempts. Each execution belongs to one attempt, and
// each starts where the record of its predecessors ended.
func (c *cluster) checkRuns(f *outsideAgents, task string) []action {
	c.t.Helper()
	epochs := column[int64](c, `SELECT token FROM audit.attempt
		WHERE task_id::text = $1 AND outcome IS DISTINCT FROM 'unreachable' ORDER BY token`, task)
	runs := f.actions("run", task)
	from := 0
	for i, d := range runs {
		attempt := -1
		for j, e := range epochs {
			if e == d.Epoch {
				attempt = j
			}
		}
		if attempt < 0 || d.Attempt != attempt+1 {
			c.t.Errorf("execution %d under claim %d says that it is attempt %d; the record has the claims %v", i+1,
				d.Epoch, d.Attempt, epochs)
		}
		if d.From < from || i > 0 && d.Epoch <= runs[i-1].Epoch {
			c.t.Errorf("execution %d begins at chunk %d under claim %d, after %+v", i+1, d.From, d.Epoch, runs[:i])
		}
		from = d.From
	}
	if n := one[int](c, `SELECT count(*) FROM a2a.task_checkpoints WHERE task_id::text = $1`, task); n != 0 {
		c.t.Errorf("task %s has ended and its checkpoint still exists", task)
	}
	return runs
}
