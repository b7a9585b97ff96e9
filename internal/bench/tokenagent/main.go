// Tokenagent is an agent on a web server that writes tokens, for `go run ./internal/bench -run peers`. It prints its
// address, and serves until it is killed. It is a process of its own so that its CPU time can be counted with a2ad's:
// in the servers that a2ad is compared with, the agent is part of the server.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Println(l.Addr())
		err = (&http.Server{Handler: http.HandlerFunc(report), ReadHeaderTimeout: time.Minute}).Serve(l)
	}
	fmt.Fprintln(os.Stderr, "tokenagent:", err)
	os.Exit(1)
}

// report writes the tokens that the message "tokens N R" asks for: N tokens at R per second.
func report(w http.ResponseWriter, r *http.Request) {
	var run struct {
		Messages []struct{ Parts []struct{ Text string } }
	}
	if err := json.NewDecoder(r.Body).Decode(&run); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text := ""
	for _, m := range run.Messages {
		for _, p := range m.Parts {
			text += p.Text
		}
	}
	var n, rate int
	if _, err := fmt.Fscanf(strings.NewReader(text), "tokens %d %d", &n, &rate); err != nil || rate <= 0 {
		http.Error(w, "write tokens N R", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	if tokens(r.Context(), w, n, rate) == nil {
		// a2ad notices if this is lost
		_, _ = io.WriteString(w, `{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}`+"\n")
	}
}

// tokens writes a line for each token. A token is the time of its report in microseconds, and its number: 20 bytes.
func tokens(ctx context.Context, w http.ResponseWriter, n, rate int) error {
	flush := http.NewResponseController(w).Flush
	start, interval := time.Now(), time.Second/time.Duration(rate)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range n {
		timer.Reset(time.Until(start.Add(time.Duration(i+1) * interval)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if _, err := fmt.Fprintf(w, `{"artifactUpdate":{"artifact":{"artifactId":"a","parts":[{"text":"%016d:%03d"}]},`+
			`"append":%t}}`+"\n", time.Now().UnixMicro(), i, i > 0); err != nil {
			return err
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return nil
}
