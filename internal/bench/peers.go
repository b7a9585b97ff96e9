package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// side is a server of the comparison: a2ad, or an official one with its tasks in memory.
type side struct {
	name   string
	addr   string
	key    string
	tokens string // path of the agent that writes tokens
	parts  []*server
	// durable says that the CPU time of PostgreSQL belongs to this side.
	durable bool
}

// cpu is the CPU time that the processes of a side have used. own is that of the load generator.
func (b *bench) sideCPU(s *side) (u usage, err error) {
	if u, err = b.usage(s.parts...); err == nil && !s.durable {
		u.postgres = 0
	}
	return u, err
}

// peers measures a2ad next to the official servers. All of them answer the same requests of the same generator, in
// turns.
func (b *bench) peers(ctx context.Context) (err error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	ours, err := b.ourSide(ctx, url)
	if err != nil {
		return err
	}
	sides := []*side{ours}
	defer func() {
		for _, s := range sides {
			for _, p := range s.parts {
				p.stop()
			}
		}
	}()
	for _, p := range []struct {
		name  string
		start func(b *bench, ctx context.Context) (*side, error)
	}{{jsPeer, (*bench).jsSide}, {goPeer, (*bench).goSide}} {
		s, err := p.start(b, ctx)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			b.log.Warn("a server is left out", "server", p.name, "err", err)
			b.report.leaveOut(p.name, err)
			continue
		}
		sides = append(sides, s)
	}
	for _, callers := range []int{32, 256} {
		if err := b.peerSends(ctx, url, sides, callers); err != nil {
			return fmt.Errorf("%d callers: %w", callers, err)
		}
	}
	for _, shape := range []shape{{20, textTokens}, {100, textTokens}, {20, longTokens}} {
		if err := b.peerStreams(ctx, sides, shape); err != nil {
			return fmt.Errorf("%v: %w", shape, err)
		}
	}
	if err := b.peerHeld(ctx, url, sides); err != nil {
		return fmt.Errorf("most streams: %w", err)
	}
	return b.checkFinished(ctx, url)
}

// Names of the official servers, as figures have them.
const (
	jsPeer = "a2a-js"
	goPeer = "a2a-go"
)

// peerVersions are those in package.json and go.mod, which a test compares.
var peerVersions = map[string]string{jsPeer: "1.3.0", goPeer: "2.4.0"}

// ourSide starts a2ad with echo, and with a web server as an agent, which writes tokens.
func (b *bench) ourSide(ctx context.Context, url string) (*side, error) {
	key, err := b.key(ctx, url)
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(b.dir, "tokenagent")
	if err := b.goBuild(ctx, b.root, binary, "./internal/bench/tokenagent"); err != nil {
		return nil, err
	}
	agent, addr, err := b.startPeer(ctx, "tokenagent", exec.Command(binary))
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.dir, "peers")
	err = os.MkdirAll(dir, 0o755)
	for name, text := range map[string]string{
		"echo.yaml":   "name: echo\ndescription: Says what it was told.\ndefault: true\nexecutor: {echo: {}}\n",
		"tokens.yaml": "name: tokens\ndescription: Writes tokens.\nexecutor: {http: {url: http://" + addr + "/}}\n",
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	if err != nil {
		agent.stop()
		return nil, err
	}
	s, err := b.serve(ctx, "bench-peers", url, "A2AD_AGENTS="+dir, noStreamLimit)
	if err != nil {
		agent.stop()
		return nil, err
	}
	return &side{name: "a2ad", addr: s.addr(), key: key, tokens: "/agents/tokens", parts: []*server{s, agent},
		durable: true}, nil
}

// goSide starts the official server for Go, from a module of its own.
func (b *bench) goSide(ctx context.Context) (*side, error) {
	binary := filepath.Join(b.dir, "goserver")
	if err := b.goBuild(ctx, filepath.Join(b.root, "internal", "interop"), binary, "./peerbench/goserver"); err != nil {
		return nil, err
	}
	s, addr, err := b.startPeer(ctx, goPeer, exec.Command(binary))
	if err != nil {
		return nil, err
	}
	return &side{name: goPeer, addr: addr, key: "none", tokens: "/", parts: []*server{s}}, nil
}

// jsSide installs the packages of the lock file and starts the official server for JavaScript.
func (b *bench) jsSide(ctx context.Context) (*side, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("it needs node: %w", err)
	}
	dir := filepath.Join(b.root, "internal", "interop", "peerbench", "jsserver")
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm ci: %w: %s", err, lastLine(out))
	}
	cmd := exec.Command(node, filepath.Join(dir, "server.js"))
	cmd.Env = append(os.Environ(), "NODE_ENV=production")
	s, addr, err := b.startPeer(ctx, jsPeer, cmd)
	if err != nil {
		return nil, err
	}
	return &side{name: jsPeer, addr: addr, key: "none", tokens: "/", parts: []*server{s}}, nil
}

func (b *bench) goBuild(ctx context.Context, dir, out, pkg string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", out, pkg)
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w: %s", pkg, err, lastLine(text))
	}
	return nil
}

// startPeer starts a process that prints its address.
func (b *bench) startPeer(ctx context.Context, name string, cmd *exec.Cmd) (_ *server, addr string, err error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	s := &server{name: name, cmd: cmd, log: filepath.Join(b.dir, name+".log")}
	cmd.Stdout = in
	err = s.start()
	in.Close()
	if err != nil {
		out.Close()
		return nil, "", err
	}
	line, err := firstLine(ctx, out)
	// The process may print more. The pipe ends with the process.
	go func() {
		_, _ = io.Copy(io.Discard, out)
		out.Close()
	}()
	if err != nil {
		s.stop()
		text, _ := os.ReadFile(s.log)
		return nil, "", fmt.Errorf("%s did not start: %w: %s", name, err, lastLine(text))
	}
	return s, strings.TrimSpace(line), nil
}

// firstLine reads a line, and gives up after startLimit.
func firstLine(ctx context.Context, f *os.File) (string, error) {
	expire := func() { _ = f.SetReadDeadline(time.Unix(1, 0)) } // the read then fails
	timer := time.AfterFunc(startLimit, expire)
	defer timer.Stop()
	defer context.AfterFunc(ctx, expire)()
	return bufio.NewReader(f).ReadString('\n')
}

// void is an error if the load generator used so much of the cores that it distorts the result.
func void(share float64) error {
	if share > tooBusy {
		return fmt.Errorf("%w: %.0f %% of the cores", errBusyGenerator, share*100)
	}
	return nil
}

// startLimit is how long a server may take until it is ready.
const startLimit = 20 * time.Second

var errBusyGenerator = errors.New("void: the load generator used too much")
