package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Sizes of an agent's report.
const (
	plugChunks = 1000
	plugBytes  = 100
)

// plugs measures agents behind web servers: the cost of the HTTP hop, and whether an agent that floods slows others
// down. The agents run in this process.
func (b *bench) plugs(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	var flooding atomic.Bool
	dir, stop, err := b.webAgents(ctx, &flooding)
	if err != nil {
		return err
	}
	defer stop()
	s, err := b.serve(ctx, "bench-plugs", url, "A2AD_AGENTS="+dir)
	if err != nil {
		return err
	}
	defer s.stop()
	if err := b.plugStream(ctx, s, key); err != nil {
		return err
	}
	return b.plugFlood(ctx, s, key, &flooding, url)
}

// webAgents starts a web server with two agents, and returns a directory with their agent files and those of echo and
// script.
func (b *bench) webAgents(ctx context.Context, flooding *atomic.Bool) (dir string, stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: webAgent(flooding), ReadHeaderTimeout: ioLimit}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	stop = func() {
		srv.Close()
		<-served //nolint:errcheck // it was closed
	}
	dir = filepath.Join(b.dir, "plugs")
	files := map[string]string{
		"echo.yaml":   "name: echo\ndescription: Says what it was told.\ndefault: true\nexecutor: {echo: {}}\n",
		"script.yaml": "name: script\ndescription: Plays a script.\nexecutor: {script: {}}\n",
	}
	for _, name := range []string{"chunks", "flood"} {
		files[name+".yaml"] = fmt.Sprintf("name: %s\ndescription: Reports.\n"+
			"executor: {http: {url: http://%s/%s}}\nlimits: {max_attempts: 1, concurrency: 1}\n",
			name, l.Addr(), name)
	}
	err = os.MkdirAll(dir, 0o755)
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	if err != nil {
		stop()
		return "", nil, err
	}
	return dir, stop, nil
}

// webAgent reports what the script agent does for a chunk op of the same size, one event at a time. While flooding is
// set, it floods.
func webAgent(flooding *atomic.Bool) http.HandlerFunc {
	drops := []byte(strings.Repeat(`{"artifactUpdate":{"artifact":{"artifactId":"a","parts":[{"text":"`+
		strings.Repeat("x", 600)+`"}]},"append":true}}`+"\n", 64))
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		if r.URL.Path == "/chunks" {
			reportChunks(w)
		}
		for flooding.Load() && r.URL.Path == "/flood" {
			if _, err := w.Write(drops); err != nil {
				return
			}
		}
		// the server notices
		_, _ = io.WriteString(w, `{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}`+"\n")
	}
}

func reportChunks(w http.ResponseWriter) {
	flush := http.NewResponseController(w).Flush
	for k := range plugChunks {
		text := "a:" + strconv.Itoa(k) + ":"
		text += strings.Repeat("x", plugBytes-len(text))
		fmt.Fprintf(w, "{\"checkpoint\":{\"op\":0,\"done\":%d}}\n", k+1)
		fmt.Fprintf(w,
			`{"artifactUpdate":{"artifact":{"artifactId":"a","parts":[{"text":"%s"}]},"append":%t,"lastChunk":%t}}`+
				"\n", text, k > 0, k == plugChunks-1)
		if flush() != nil {
			return
		}
	}
}

// plugStream compares a task of many chunks of an HTTP agent with the same task of the built-in agent, in turns.
func (b *bench) plugStream(ctx context.Context, s *server, key string) error {
	script := sendRequest("message/send", "s",
		scriptPart(fmt.Sprintf(`{"op":"chunk","id":"a","n":%d,"bytes":%d},{"op":"complete"}`, plugChunks, plugBytes)),
		"")
	inside, err := dial(ctx, s.addr(), "/agents/script", key, 64<<10)
	if err != nil {
		return err
	}
	defer inside.close()
	outside, err := dial(ctx, s.addr(), "/agents/chunks", key, 64<<10)
	if err != nil {
		return err
	}
	defer outside.close()
	last := []byte("a:" + strconv.Itoa(plugChunks-1) + ":")
	once := func(c *httpConn, body []byte) (time.Duration, error) {
		start := time.Now()
		answer, err := c.do(body)
		if err == nil && (!strings.Contains(string(answer), string(completed)) ||
			!strings.Contains(string(answer), string(last))) {
			err = fmt.Errorf("void: unexpected answer: %.300s", answer)
		}
		return time.Since(start), err
	}
	var ratios []float64
	var ins, outs []time.Duration
	for range b.number(9, 5) {
		var in, out []time.Duration
		for range b.number(10, 5) {
			i, err := once(inside, script)
			if err != nil {
				return err
			}
			o, err := once(outside, sendRequest("message/send", "h", textPart("go"), ""))
			if err != nil {
				return err
			}
			in, out = append(in, i), append(out, o)
		}
		slices.Sort(in)
		slices.Sort(out)
		ratios = append(ratios, float64(quantile(out, 0.5))/float64(quantile(in, 0.5)))
		ins, outs = append(ins, in...), append(outs, out...)
	}
	slices.Sort(ins)
	slices.Sort(outs)
	f := figure{Name: fmt.Sprintf("%d chunks of an agent over HTTP / in process", plugChunks), Unit: "×",
		Target: atMost(1.1)}.series(ratios)
	f.Detail = fmt.Sprintf("chunks of %d B with a checkpoint each, as fast as they come; in process %s ms, "+
		"over HTTP %s ms, with the agent on the same cores", plugBytes,
		number(ms(quantile(ins, 0.5))), number(ms(quantile(outs, 0.5))))
	b.report.add(f)
	return nil
}

// plugFlood compares sends to echo with the same sends while another agent reports without end, in turns.
func (b *bench) plugFlood(ctx context.Context, s *server, key string, flooding *atomic.Bool, url string) error {
	const perSecond = 50
	span := b.span(10*time.Second, 4*time.Second)
	measured := func(prefix string) (time.Duration, error) {
		load := &echoLoad{addr: s.addr(), key: key, prefix: prefix}
		took, _, err := load.open(ctx, perSecond, span, 32)
		slices.Sort(took)
		if err != nil {
			return 0, err
		}
		return quantile(took, 0.99), nil
	}
	var ratios []float64
	var quiet, beside []float64
	for round := range b.number(5, 3) {
		alone, err := measured(fmt.Sprintf("q%d-", round))
		if err != nil {
			return err
		}
		flooding.Store(true)
		amid, err := time.Duration(0), b.flood(ctx, s, key)
		if err == nil {
			amid, err = measured(fmt.Sprintf("f%d-", round))
		}
		flooding.Store(false)
		if err = errors.Join(err, b.ebb(ctx, url)); err != nil {
			return err
		}
		ratios = append(ratios, float64(amid)/float64(alone))
		quiet, beside = append(quiet, ms(alone)), append(beside, ms(amid))
	}
	events, err := b.queryInt(ctx, url, "SELECT sum(last_seq) FROM a2a.tasks WHERE agent = 'flood'")
	if err != nil {
		return err
	}
	f := figure{Name: "sends beside an agent that floods: p99 / alone", Unit: "×", Target: atMost(2)}.series(ratios)
	f.Detail = fmt.Sprintf("%d/s to echo: %s ms alone, %s ms beside; the flood was %.0f events/s", perSecond,
		number(median(quiet)), number(median(beside)), float64(events)/float64(len(ratios))/span.Seconds())
	b.report.add(f)
	return nil
}

// flood keeps the flooding agent busy with one task after another.
func (b *bench) flood(ctx context.Context, s *server, key string) error {
	c, err := dial(ctx, s.addr(), "/agents/flood", key, 64<<10)
	if err != nil {
		return err
	}
	defer c.close()
	for i := range 20 {
		body := sendRequest("message/send", "f"+strconv.Itoa(i), textPart("go"), "")
		body = append(body[:len(body)-2], `,"configuration":{"blocking":false}}}`...)
		if _, err := c.do(body); err != nil {
			return err
		}
	}
	return nil
}

// ebb waits until the flooded tasks have ended.
func (b *bench) ebb(ctx context.Context, url string) error {
	for {
		n, err := b.queryInt(ctx, url, "SELECT count(*) FROM a2a.tasks WHERE state < 100")
		if err != nil || n == 0 {
			return err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
