package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func TestReportWritesTokens(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(report))
	defer srv.Close()
	const event = `{"artifactUpdate":{"artifact":{"artifactId":"a","parts":\[{"text":"\d{16}:`
	for _, tt := range []struct{ text, want string }{
		{"tokens 2 1000", `^200 ` + event + `000"}\]},"append":false}}` + "\n" +
			event + `001"}\]},"append":true}}` + "\n" +
			`{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}` + "\n$"},
		{"hello", "^400 write tokens N R\n$"},
		{"tokens 2 0", "^400 write tokens N R\n$"},
	} {
		resp, err := http.Post(srv.URL, "application/json", //nolint:noctx // of a test
			strings.NewReader(`{"task":{},"messages":[{"parts":[{"text":"`+tt.text+`"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := resp.Status[:4] + string(body); err != nil || !regexp.MustCompile(tt.want).MatchString(got) {
			t.Errorf("%q: %v, got\n%s\nwant\n%s", tt.text, err, got, tt.want)
		}
	}
}
