package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/e2e/attack"
)

// heldMemory is the memory limit of a replica under attack.
const heldMemory = "GOMEMLIMIT=220MiB"

// memory measures how much memory hostile clients make a replica hold. Each attack runs against a replica of its own,
// then all of them at once; meanwhile another owner's reads are timed.
func (b *bench) memory(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	eve, err := b.keyOf(ctx, url, "eve")
	if err != nil {
		return err
	}
	ann, err := b.keyOf(ctx, url, "ann")
	if err != nil {
		return err
	}
	vast, large, small, err := b.largeTasks(ctx, url, eve, ann)
	if err != nil {
		return err
	}
	for _, a := range attacksOn(vast, large) {
		seen := &attack.Statuses{}
		most, reads, err := b.underAttack(ctx, url, eve, ann, small,
			func(t *attack.Target) func() { return a.start(t, seen) })
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		b.report.add(figure{
			Name: "under attack, " + a.name + ": memory", Value: float64(most) / (1 << 20), Unit: "MiB",
			Target: atMost(256),
			Detail: fmt.Sprintf("%s; most resident; answers by status (0: none; of calls the code of gRPC, -1: "+
				"none): %v", heldMemory, seen.All()),
		})
		b.report.add(figure{
			Name: "under attack, " + a.name + ": GetTask of another owner, p99", Value: ms(quantile(reads, 0.99)),
			Unit: "ms", Target: atMost(250),
			Detail: fmt.Sprintf("%d reads, p50 %s ms", len(reads), number(ms(quantile(reads, 0.50)))),
		})
	}
	return nil
}

// hostile is one attack.
type hostile struct {
	name  string
	start func(t *attack.Target, seen *attack.Statuses) (stop func())
}

// attacksOn returns each attack, and last all of them at once. vast and large are the tasks that they request.
func attacksOn(vast, large string) []hostile {
	get := attack.Request("tasks/get", `{"id":"`+vast+`"}`)
	attacks := []hostile{
		{"600 bodies announced and not sent",
			func(t *attack.Target, s *attack.Statuses) func() { return t.Bodies(600, 4<<20, 1, "", s) }},
		{"400 bodies without their last byte",
			func(t *attack.Target, s *attack.Statuses) func() { return t.Bodies(400, 4<<20, 4<<20-1, "", s) }},
		{"20 unread answers of 57 MB",
			func(t *attack.Target, s *attack.Statuses) func() { return t.Unread(20, get, s) }},
		{"20 unread streams of 57 MB", func(t *attack.Target, s *attack.Statuses) func() {
			return t.Unread(20, attack.Request("tasks/resubscribe", `{"id":"`+vast+`"}`), s)
		}},
		{"lists of tasks of 4 MB, 4 at once", func(t *attack.Target, s *attack.Statuses) func() {
			return t.Flood(4, attack.Request("tasks/list", `{"pageSize":100}`), s)
		}},
		{"400 gRPC calls announced and not sent", func(t *attack.Target, s *attack.Statuses) func() {
			return t.Calls(t.Addr, 2, 200, s).Stalled("SendMessage", 4<<20, 1)
		}},
		{"200 gRPC calls without their last byte", func(t *attack.Target, s *attack.Statuses) func() {
			return t.Calls(t.Addr, 4, 50, s).Stalled("SendMessage", 4<<20, 4<<20-1)
		}},
		{"20 unread gRPC answers of 4 MB", func(t *attack.Target, s *attack.Statuses) func() {
			return t.Calls(t.Addr, 2, 10, s).Unread("GetTask", t.TaskMessage(large))
		}},
		{"20 unread gRPC streams of 4 MB", func(t *attack.Target, s *attack.Statuses) func() {
			return t.Calls(t.Addr, 2, 10, s).Unread("SubscribeToTask", t.TaskMessage(large))
		}},
		{"lists of tasks of 4 MB over gRPC, 4 at once", func(t *attack.Target, s *attack.Statuses) func() {
			return t.Calls(t.Addr, 1, 4, s).Flood("ListTasks", t.ListMessage(100, ""))
		}},
	}
	all := hostile{"all at once", func(t *attack.Target, s *attack.Statuses) func() {
		var stops []func()
		for _, a := range attacks {
			stops = append(stops, a.start(t, s))
		}
		return func() {
			for _, stop := range stops {
				stop()
			}
		}
	}}
	return append(attacks, all)
}

var taskIn = regexp.MustCompile(`"id":"([0-9a-f-]{36})"`)

// largeTasks creates the targets of the attacks: one task of 57 MB, 24 of 4 MB (the last stays open, so that streams
// can follow it), and a small one of another owner.
func (b *bench) largeTasks(ctx context.Context, url, eve, ann string) (vast, large, small string, err error) {
	s, err := b.serve(ctx, "bench-builds", url)
	if err != nil {
		return "", "", "", err
	}
	defer s.stop()
	client := &http.Client{Timeout: 2 * time.Minute}
	send := func(key, request string) (string, error) {
		t := attack.Target{Addr: s.addr(), Key: key, Agent: "script"}
		status, answer, err := t.Post(client, request)
		m := taskIn.FindSubmatch(answer)
		if err != nil || status != http.StatusOK || m == nil {
			return "", fmt.Errorf("make a large task: %d %.200s: %w", status, answer, err)
		}
		return string(m[1]), nil
	}
	const size = 3900 << 10
	for i := range 15 {
		if vast, err = send(eve, attack.Large(fmt.Sprint("v", i), vast, size, i == 14)); err != nil {
			return "", "", "", err
		}
	}
	for i := range 24 {
		if large, err = send(eve, attack.Large(fmt.Sprint("l", i), "", size, i < 23)); err != nil {
			return "", "", "", err
		}
	}
	small, err = send(ann, attack.Large("s", "", 100, true))
	return vast, large, small, err
}

var errEnded = errors.New("the replica ended")

// underAttack returns the peak resident memory of a replica, and the response times of another owner's reads.
func (b *bench) underAttack(ctx context.Context, url, eve, ann, small string,
	start func(t *attack.Target) func()) (most int64, took []time.Duration, err error) {
	s, err := b.serve(ctx, "bench-held", url, heldMemory, "A2AD_GRPC_LISTEN=same")
	if err != nil {
		return 0, nil, err
	}
	defer s.stop()
	stop := start(&attack.Target{Addr: s.addr(), Key: eve, Agent: "script"})
	defer stop()
	other := attack.Target{Addr: s.addr(), Key: ann, Agent: "script"}
	client := &http.Client{Timeout: 30 * time.Second}
	request := attack.Request("tasks/get", `{"id":"`+small+`"}`)
	end := time.Now().Add(b.span(12*time.Second, 6*time.Second))
	for time.Now().Before(end) && ctx.Err() == nil {
		begin := time.Now()
		status, answer, err := other.Post(client, request)
		if err != nil {
			return 0, nil, fmt.Errorf("a read of another owner: %w", err)
		}
		if status != http.StatusOK {
			return 0, nil, fmt.Errorf("a read of another owner got %d %s", status, answer)
		}
		took = append(took, time.Since(begin))
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return 0, nil, err
		}
	}
	kb, err := strconv.ParseInt(strings.TrimSuffix(procField(filepath.Join("/proc", strconv.Itoa(s.pid()), "status"),
		"VmHWM"), " kB"), 10, 64)
	if err != nil {
		return 0, nil, errEnded
	}
	slices.Sort(took)
	return kb << 10, took, nil
}
