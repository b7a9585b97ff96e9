package mcp

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// progressInterval is the least time between two notifications about chunks of text, which agents may send by the
// thousand.
const progressInterval = 100 * time.Millisecond

// progress reports the events of a task to the client, if its call asked for that. Chunks that follow each other
// quickly are sent together. Nothing is lost or reordered, and the order is that of the events.
type progress struct {
	send func(message string) // nil: the client wants no progress

	mu     sync.Mutex
	chunks strings.Builder // guarded by mu: text that is not sent yet
	timer  *time.Timer     // guarded by mu: sends the chunks; nil if the last interval is over
	closed bool            // guarded by mu
}

func (c *call) newProgress(ctx context.Context) *progress {
	token := c.req.Params.GetProgressToken()
	if token == nil {
		return &progress{}
	}
	n := 0.0
	return &progress{send: func(message string) {
		n++
		// A client that has disconnected needs none: the end of the call says so.
		_ = c.req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
			ProgressToken: token, Progress: n, Message: message,
		})
	}}
}

// event reports one event. The first one names the task, so a client that is cut off later can find it.
func (p *progress) event(ev client.Event, first bool) {
	if p.send == nil {
		return
	}
	switch ev.Kind {
	case client.KindTask:
		if first || ev.Gap {
			p.say(fmt.Sprintf("Task %s is %s.", ev.TaskID, ev.State))
		}
	case client.KindStatus:
		_, message := splitExpects(ev.Parts)
		if said := client.Text(message); said != "" {
			p.say(said)
		} else {
			p.say(fmt.Sprintf("Task %s is %s.", ev.TaskID, ev.State))
		}
	case client.KindArtifact:
		p.chunk(chunkText(ev.Artifact.Parts))
	case client.KindMessage:
	}
}

// chunkText returns what people read of a chunk: its text, and the names of its files.
func chunkText(parts []a2a.Part) string {
	var b strings.Builder
	for _, part := range parts {
		switch part.Kind {
		case a2a.PartText:
			b.WriteString(part.Text)
		case a2a.PartData:
			b.Write(part.Data)
		case a2a.PartFile:
			fmt.Fprintf(&b, "[file %s]", part.Filename)
		case a2a.PartURL:
			fmt.Fprintf(&b, "[file %s]", part.Text)
		}
	}
	return b.String()
}

// say sends the chunks that wait, and a message after them.
func (p *progress) say(message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flush()
	p.send(message)
}

func (p *progress) chunk(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chunks.WriteString(text)
	if p.timer == nil && p.chunks.Len() > 0 {
		p.flush()
		p.timer = time.AfterFunc(progressInterval, p.intervalOver)
	}
}

func (p *progress) intervalOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if p.closed || p.chunks.Len() == 0 {
		return
	}
	p.flush()
	p.timer = time.AfterFunc(progressInterval, p.intervalOver)
}

// flush sends the chunks that wait. The caller holds mu.
func (p *progress) flush() {
	if p.chunks.Len() > 0 {
		p.send(p.chunks.String())
		p.chunks.Reset()
	}
}

// close sends what waits. Nothing is sent after it has returned.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flush()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
