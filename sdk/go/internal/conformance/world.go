package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
)

// world is what agents have effects on.
type world interface {
	// effect does something outside, and returns its result.
	effect(ctx context.Context, name, key string) (any, error)
}

// runner is the runner of the suite, which counts effects and says how each of them ends.
type runner struct {
	url  string
	http *http.Client
}

func (w *runner) effect(ctx context.Context, name, key string) (any, error) {
	body, err := json.Marshal(map[string]string{"name": name, "key": key})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	var answer struct {
		Result any    `json:"result"`
		Error  string `json:"error"`
	}
	decoder := json.NewDecoder(resp.Body)
	decoder.UseNumber()
	if err := decoder.Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return answer.Result, nil
}
