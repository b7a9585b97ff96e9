package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/a2ad/a2ad/internal/e2e/attack"
)

// memoryLimit is the memory of the replica under attack.
const memoryLimit = 256 << 20

// confine limits the memory of a process, with a cgroup if possible, otherwise with a watchdog that kills it. It logs
// which one it uses.
func confine(t *testing.T, pid int, limit int64) {
	t.Helper()
	for _, v := range []struct{ dir, file string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	} {
		dir := filepath.Join(v.dir, fmt.Sprintf("a2ad-test-%d", pid))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) }) // removable once the process has ended
		if os.WriteFile(filepath.Join(dir, v.file), []byte(strconv.FormatInt(limit, 10)), 0o600) == nil &&
			os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600) == nil {
			t.Logf("limited to %d MiB by the cgroup %s", limit>>20, dir)
			return
		}
	}
	t.Logf("cannot create a cgroup: a watchdog kills the process above %d MiB of resident memory", limit>>20)
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond) // the kernel announces no memory figure
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if p, err := os.FindProcess(pid); err == nil && memoryOf(pid, "VmRSS") > limit {
				_ = p.Kill()
			}
		}
	}()
}

// memoryOf reads a memory figure of a process, in bytes.
func memoryOf(pid int, what string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, what+":"); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

// answered posts a request until the answer is 200: the server may ask the setup to wait.
func answered(t *testing.T, target *attack.Target, client *http.Client, request string) string {
	t.Helper()
	var answer []byte
	until(t, "a request is accepted", func() bool {
		status, a, err := target.Post(client, request)
		answer = a
		return err == nil && status == http.StatusOK
	})
	return string(answer)
}

var taskID = regexp.MustCompile(`"id":"([0-9a-f-]{36})"`)

func idIn(t *testing.T, answer string) string {
	t.Helper()
	m := taskID.FindStringSubmatch(answer)
	if m == nil {
		t.Fatalf("no task in %.500s", answer)
	}
	return m[1]
}

// All attacks run at once against a replica with 256 MiB, over HTTP and over gRPC on either listener. At worst the
// attacker is asked to retry later, and another owner continues to work.
func TestMemoryAttacksDoNotKillTheReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cutOK, c.mixed = true, true
	s := &siege{
		cluster: c, client: &http.Client{Timeout: 2 * patience},
		eve: c.apiKey("acme", "eve", "tasks:read,tasks:write,worker"),
		ann: c.apiKey("acme", "ann", "tasks:read,tasks:write"),
	}
	binary, err := buildWithoutRace()
	if err != nil {
		t.Fatal(err)
	}
	s.binary = binary
	s.makeTasks(t)
	s.withstand(t, "own", "127.0.0.1:0")
	s.withstand(t, "same", "same")
}

// siege is a replica under attack by eve, while ann reads a small task.
type siege struct {
	cluster            *cluster
	client             *http.Client
	binary             string
	eve, ann           string // API keys
	vast, large, small string // tasks; the large one stays open, so that streams can follow it
}

// makeTasks creates a task of 57 MB and 24 of 4 MB for eve, and a small one for ann.
func (s *siege) makeTasks(t *testing.T) {
	t.Helper()
	builder := s.cluster.startBinary(s.binary, "builder", "A2AD_AUTH=required")
	build := &attack.Target{Addr: strings.TrimPrefix(builder.base, "http://"), Key: s.eve, Agent: "script"}
	const big = 3900 << 10
	s.vast = idIn(t, answered(t, build, s.client, attack.Large("v0", "", big, false)))
	for i := 1; i < 15; i++ {
		answered(t, build, s.client, attack.Large(fmt.Sprint("v", i), s.vast, big, i == 14))
	}
	for i := range 24 {
		s.large = idIn(t, answered(t, build, s.client, attack.Large(fmt.Sprint("l", i), "", big, i < 23)))
	}
	mine := *build
	mine.Key = s.ann
	s.small = idIn(t, answered(t, &mine, s.client, attack.Large("s", "", 100, true)))
	builder.stop()
}

// withstand attacks a replica for a while. listen is its gRPC address.
func (s *siege) withstand(t *testing.T, port, listen string) {
	t.Helper()
	r := s.cluster.startBinary(s.binary, "held-"+port, "A2AD_AUTH=required", "GOMEMLIMIT=220MiB",
		"A2AD_READ_TIMEOUT=20s", "A2AD_WORKERS=4",
		"A2AD_SSE_WRITE_TIMEOUT=5s", "A2AD_WRITE_TIMEOUT=10s", "A2AD_STATEMENT_TIMEOUT=60s", "A2AD_GRPC_LISTEN="+listen)
	r.log.expectErrors() // 503 is a valid answer here
	defer r.stop()
	confine(t, r.cmd.Process.Pid, memoryLimit)
	target := &attack.Target{Addr: strings.TrimPrefix(r.base, "http://"), Key: s.eve, Agent: "script"}
	mine := &attack.Target{Addr: target.Addr, Key: s.ann, Agent: "script"}
	calls := r.grpc
	if calls == "" {
		calls = target.Addr
	}

	overHTTP, overGRPC := map[string]*attack.Statuses{}, map[string]*attack.Statuses{}
	var stops []func()
	for _, start := range append(s.requests(target, overHTTP), s.calls(target, calls, overGRPC)...) {
		stops = append(stops, start())
	}
	stop := sync.OnceFunc(func() {
		var stopping sync.WaitGroup
		for _, stop := range stops {
			stopping.Go(stop)
		}
		stopping.Wait()
	})
	defer stop()

	took, others := s.readMeanwhile(t, r, mine)
	stop()
	if !r.running() {
		t.Fatalf("the replica was killed: %v. Its log ends:\n%s", r.cmd.ProcessState, r.log.tail())
	}
	slices.Sort(took)
	t.Logf("gRPC on its %s port: most resident memory: %d MiB; reads of another owner: %d, p50 %s, p99 %s, %v", port,
		memoryOf(r.cmd.Process.Pid, "VmHWM")>>20,
		len(took), took[len(took)/2], took[len(took)*99/100], others.All())
	r.log.count(func(l logLine) bool {
		if l.str("grpc_status") == "Internal" {
			t.Logf("a call that ended with an internal error: %v", l)
		}
		return false
	})
	judge(t, overHTTP, 0, http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable,
		http.StatusBadRequest, http.StatusRequestTimeout)
	judge(t, overGRPC, attack.NoStatus, int(codes.OK), int(codes.ResourceExhausted), int(codes.Unavailable))
	if all := others.All(); all[http.StatusOK] < len(took)*99/100 {
		t.Errorf("another owner's reads got %v", all)
	}
	if most := memoryOf(r.cmd.Process.Pid, "VmHWM"); most > memoryLimit {
		t.Errorf("the replica used %d MiB", most>>20)
	}
	// Memory is free again, and the large task can be read.
	until(t, "the large task is read", func() bool {
		status, _, err := target.Post(s.client, attack.Request("tasks/get", `{"id":"`+s.vast+`"}`))
		return err == nil && status == http.StatusOK
	})
	again := &attack.Statuses{}
	until(t, "a page is read over gRPC", func() bool {
		target.Calls(calls, 1, 1, again).Once("ListTasks", target.ListMessage(100, ""))
		return again.All()[int(codes.OK)] > 0
	})
}

// judge reports answers that no client may get.
func judge(t *testing.T, seen map[string]*attack.Statuses, fine ...int) {
	t.Helper()
	for name, s := range seen {
		t.Logf("%s: %v", name, s.All())
		for status := range s.All() {
			if !slices.Contains(fine, status) {
				t.Errorf("%s: answered with %d", name, status)
			}
		}
	}
}

// requests are the attacks over HTTP.
func (s *siege) requests(target *attack.Target, seen map[string]*attack.Statuses) []func() func() {
	count := func(name string) *attack.Statuses { seen[name] = &attack.Statuses{}; return seen[name] }
	get := attack.Request("tasks/get", `{"id":"`+s.vast+`"}`)
	return []func() func(){
		func() func() { return target.Bodies(600, 4<<20, 1, "", count("announced")) },
		func() func() { return target.Bodies(400, 4<<20, 4<<20-1, "", count("nearly complete")) },
		func() func() {
			return target.Bodies(100, 4<<20, 4<<20-1, "/worker/v1/claim", count("nearly complete, of workers"))
		},
		func() func() { return target.Unread(20, get, count("unread")) },
		func() func() {
			return target.Unread(20, attack.Request("tasks/resubscribe", `{"id":"`+s.vast+`"}`),
				count("unread streams"))
		},
		func() func() {
			return target.Flood(4, attack.Request("tasks/list", `{"pageSize":100}`), count("lists"))
		},
		func() func() { return target.Flood(2, get, count("read")) },
	}
}

// readMeanwhile makes ann read her task repeatedly, and returns the response times.
func (s *siege) readMeanwhile(t *testing.T, r *replica, mine *attack.Target) (took []time.Duration,
	seen *attack.Statuses) {
	t.Helper()
	seen = &attack.Statuses{}
	get := attack.Request("tasks/get", `{"id":"`+s.small+`"}`)
	for deadline := time.Now().Add(25 * time.Second); time.Now().Before(deadline) && r.running(); {
		start := time.Now()
		status, answer, err := mine.Post(s.client, get)
		took = append(took, time.Since(start))
		if err != nil {
			status = 0
		}
		seen.Add(status)
		if status == http.StatusOK && !strings.Contains(string(answer), s.small) {
			t.Fatalf("a read meanwhile: %.500s", answer)
		}
	}
	return took, seen
}

// In all bindings, pages of large tasks are small, and together they contain every task once.
func TestPagesAreLimitedByBytes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	target := &attack.Target{Addr: strings.TrimPrefix(a.base, "http://"), Agent: "script"}
	client := &http.Client{Timeout: patience}
	var made atomic.Int64
	for i := range 6 {
		answered(t, target, client, attack.Large(fmt.Sprint("m", i), "", 1900<<10, true))
		made.Add(1)
	}
	const most = 5 << 20
	for name, ask := range map[string]func(token string) (*http.Request, error){
		"0.3": func(token string) (*http.Request, error) {
			return http.NewRequest(http.MethodPost, a.base+"/agents/script",
				strings.NewReader(attack.Request("tasks/list", `{"pageSize":100,"pageToken":"`+token+`"}`)))
		},
		"1.0": func(token string) (*http.Request, error) {
			r, err := http.NewRequest(http.MethodPost, a.base+"/agents/script",
				strings.NewReader(attack.Request("ListTasks", `{"pageSize":100,"pageToken":"`+token+`"}`)))
			if err == nil {
				r.Header.Set("A2A-Version", "1.0")
			}
			return r, err
		},
		"HTTP+JSON": func(token string) (*http.Request, error) {
			r, err := http.NewRequest(http.MethodGet, a.base+"/agents/script/tasks?pageSize=100&pageToken="+token, nil)
			if err == nil {
				r.Header.Set("A2A-Version", "1.0")
			}
			return r, err
		},
	} {
		ids, token := map[string]bool{}, ""
		for page := 0; page < 20; page++ {
			req, err := ask(token)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			got := c.read(t, client, req)
			if len(got) > most {
				t.Errorf("%s: a page of %d bytes", name, len(got))
			}
			var answer struct {
				Result json.RawMessage
			}
			if err := json.Unmarshal(got, &answer); err != nil || answer.Result == nil {
				answer.Result = got
			}
			var list struct {
				Tasks         []struct{ ID string }
				NextPageToken string
			}
			if err := json.Unmarshal(answer.Result, &list); err != nil {
				t.Fatalf("%s: %v: %.300s", name, err, got)
			}
			for _, task := range list.Tasks {
				if ids[task.ID] {
					t.Errorf("%s: task %s is listed twice", name, task.ID)
				}
				ids[task.ID] = true
			}
			if token = list.NextPageToken; token == "" {
				break
			}
		}
		if int64(len(ids)) != made.Load() {
			t.Errorf("%s: %d tasks in all pages, want %d", name, len(ids), made.Load())
		}
	}
}

func (c *cluster) read(t *testing.T, client *http.Client, req *http.Request) []byte {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var buf strings.Builder
	if _, err := io.Copy(&buf, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s, %v: %.300s", req.Method, req.URL, resp.Status, err, buf.String())
	}
	return []byte(buf.String())
}
