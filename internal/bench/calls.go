package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// calledTasks is how many tasks one task calls.
const calledTasks = 100

// callingAgent is the answer of an agent that calls echo, waits for all of its tasks, and completes.
func callingAgent(w http.ResponseWriter, r *http.Request) {
	run, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	if bytes.Contains(run, []byte(`"by":"tasks"`)) {
		_, _ = io.WriteString(w, completedEvent) // the server notices
		return
	}
	var b strings.Builder
	keys := make([]string, calledTasks)
	for i := range keys {
		keys[i] = strconv.Quote("call#" + strconv.Itoa(i+1))
		fmt.Fprintf(&b, `{"call":{"key":%s,"agent":"echo","message":{"parts":[{"text":"hello hello hello"}]}}}`+"\n",
			keys[i])
	}
	fmt.Fprintf(&b, `{"wait":{"key":"all","tasks":[%s]}}`+"\n", strings.Join(keys, ","))
	_, _ = io.WriteString(w, b.String())
}

// calls compares a task that calls others with as many tasks that a client sends at the same time.
func (b *bench) calls(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	agent := &http.Server{Handler: http.HandlerFunc(callingAgent), ReadHeaderTimeout: ioLimit}
	served := make(chan error, 1)
	go func() { served <- agent.Serve(l) }()
	defer func() {
		agent.Close()
		<-served //nolint:errcheck // it was closed
	}()
	dir, err := os.MkdirTemp(b.dir, "calls-")
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"echo.yaml": "name: echo\ndescription: Says what it was told.\ndefault: true\nexecutor: {echo: {}}\n",
		"parent.yaml": fmt.Sprintf("name: parent\ndescription: Calls.\nexecutor: {http: {url: http://%s/}}\n",
			l.Addr()),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(
		b.callsWith(ctx, figure{Name: "a task that calls 100 / 101 tasks: time", Target: atMost(1.7), Aim: atMost(1.3)},
			"A2AD_AGENTS="+dir),
		b.callsWith(ctx, figure{Name: "a task that calls 100 / 101 tasks, 16 slots: time", Target: atMost(1.3)},
			"A2AD_AGENTS="+dir, "A2AD_WORKERS=16"),
	)
}

// callsWith adds the figure of a replica with the settings.
func (b *bench) callsWith(ctx context.Context, f figure, settings ...string) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	srv, err := b.serve(ctx, "bench-calls", url, settings...)
	if err != nil {
		return err
	}
	defer srv.stop()
	if err := b.compareCalls(ctx, f, srv.addr(), key); err != nil {
		return err
	}
	return b.checkFinished(ctx, url)
}

// compareCalls adds the figure, the ratio of times.
func (b *bench) compareCalls(ctx context.Context, f figure, addr, key string) error {
	load := &echoLoad{addr: addr, key: key, prefix: "c"}
	conns := make([]*httpConn, calledTasks+1)
	for i := range conns {
		c, err := dial(ctx, addr, "/", key, 4096)
		if err != nil {
			return err
		}
		defer c.close()
		conns[i] = c
	}
	parent, err := dial(ctx, addr, "/agents/parent", key, 1<<20)
	if err != nil {
		return err
	}
	defer parent.close()
	var ratios, alone []float64
	const warm = 5 // rounds that warm up plans and connections
	for round := range b.number(60, 20) + warm {
		begin := time.Now()
		var senders errgroup.Group
		for _, c := range conns {
			senders.Go(func() error { return load.one(c) })
		}
		if err := senders.Wait(); err != nil {
			return err
		}
		plain := time.Since(begin)
		begin = time.Now()
		answer, err := parent.do(sendRequest("message/send", fmt.Sprintf("p%d", round), textPart("go"), ""))
		if err == nil && !bytes.Contains(answer, completed) {
			err = errors.New("unexpected answer: " + string(answer[:min(600, len(answer))]))
		}
		if err != nil {
			return err
		}
		if round >= warm {
			alone = append(alone, plain.Seconds())
			ratios = append(ratios, time.Since(begin).Seconds()/plain.Seconds())
		}
	}
	f.Unit = "×"
	f = f.series(ratios)
	f.Baseline = fmt.Sprintf("101 blocking sends at once to echo: %s ms", number(1000*median(alone)))
	f.Detail = fmt.Sprintf("one blocking send to an agent over HTTP that calls echo; %d pairs; one replica",
		len(ratios))
	b.report.add(f)
	return nil
}
