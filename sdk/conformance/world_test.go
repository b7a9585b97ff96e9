package conformance_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// world receives the effects of the agents of a case, counts them, and answers as the case says.
type world struct {
	t       *testing.T
	answers map[string][]any
	traffic *traffic
	url     string

	mu       sync.Mutex
	count    map[string]int           // guarded by mu
	keys     map[string]string        // guarded by mu: the idempotency key of each effect
	held     map[string]chan struct{} // guarded by mu: closed when effects of a name are released
	stopping chan struct{}
}

func newWorld(t *testing.T, answers map[string][]any, traffic *traffic) *world {
	t.Helper()
	w := &world{
		t: t, answers: answers, traffic: traffic, count: make(map[string]int), keys: make(map[string]string),
		held: make(map[string]chan struct{}), stopping: make(chan struct{}),
	}
	srv := httptest.NewServer(w)
	w.url = srv.URL
	t.Cleanup(func() {
		close(w.stopping)
		srv.Close()
	})
	return w
}

// ServeHTTP implements http.Handler: an effect.
func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var e struct{ Name, Key string }
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	answer := w.began(e.Name, e.Key)
	result := map[string]any{"result": answer}
	switch answer {
	case "hang":
		select {
		case <-r.Context().Done():
		case <-w.stopping:
		}
		return
	case "hold":
		select {
		case <-w.hold(e.Name):
		case <-w.stopping:
		}
		result["result"] = e.Name
	}
	if how, failed := answer.(map[string]any); failed && how["error"] != nil {
		result = how
	} else if text, ok := letters(answer); ok {
		result["result"] = text
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(result) // the worker may have been killed
}

// letters returns the text that {letters: N, of: TEXT} stands for.
func letters(v any) (text string, ok bool) {
	how, ok := v.(map[string]any)
	if !ok {
		return "", false
	}
	n, ok := how["letters"].(uint64)
	of, _ := how["of"].(string)
	return strings.Repeat(cmp.Or(of, "x"), int(n)), ok
}

// began counts an effect, and returns its answer: by default its name.
func (w *world) began(name, key string) any {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old, ok := w.keys[name]; ok && old != key {
		w.t.Errorf("effect %s has the idempotency key %q, and had %q before", name, key, old)
	}
	w.keys[name] = key
	n := w.count[name]
	w.count[name]++
	var answer any = name
	if list := w.answers[name]; len(list) > 0 {
		answer = list[min(n, len(list)-1)]
	}
	w.traffic.performed(name, answer)
	return answer
}

func (w *world) hold(name string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held[name] == nil {
		w.held[name] = make(chan struct{})
	}
	return w.held[name]
}

// release answers the held effects with a name.
func (w *world) release(name string) { close(w.hold(name)) }

// effects returns how often each effect has begun.
func (w *world) effects() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.count)
}

func (w *world) String() string { return fmt.Sprintf("effects: %v", w.effects()) }
