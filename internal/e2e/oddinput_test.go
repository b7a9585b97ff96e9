package e2e_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Unusual but valid input is accepted.
func TestUnusualInputIsAccepted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_MAX_BODY=64KiB", "A2AD_MAX_PART=60KiB")
	exactly := func(size int) string {
		body := message(`,"metadata":{"x":""}`)
		return strings.Replace(body, `"x":""`, `"x":"`+strings.Repeat("x", size-len(body))+`"`, 1)
	}
	for name, in := range map[string]struct {
		body   string
		header []string
	}{
		"the largest body": {body: exactly(64 << 10)},
		"a bit less":       {body: exactly(64<<10 - 1)},
		"blanks around":    {body: " \r\n\t" + message("") + "\n"},
		"unknown members":  {body: message(`,"later":{"a":1}`)},
		"emoji":            {body: withPart(`{"kind":"text","text":"😀\ud83d\ude00` + "\u202e\ufffe" + `"}`)},
		"depth 60": {body: message(`,"metadata":{"d":` + strings.Repeat("[", 58) + strings.Repeat("]", 58) +
			`}`)},
		"type with charset": {body: message(""), header: []string{"Content-Type", "application/json; charset=utf-8"}},
		"version 0.3":       {body: message(""), header: []string{"A2A-Version", "0.3"}},
		"version 0.3.0":     {body: message(""), header: []string{"A2A-Version", "0.3.0"}},
		"a thousand wishes": {body: message(""),
			header: []string{"X-A2A-Extensions", strings.Repeat("https://x.example/e,", 1000)}},
		"NUL in text":       {body: withPart(`{"kind":"text","text":"a\u0000b"}`)},
		"NUL in metadata":   {body: message(`,"metadata":{"a\u0000":"b\u0000"}`)},
		"an unusual number": {body: message(`,"metadata":{"n":` + strings.Repeat("9", 10_000) + `}`)},
	} {
		got := c.post(a, "/", in.body, in.header...)
		// NUL may be refused if the error says so.
		if strings.HasPrefix(name, "NUL") && got.status == http.StatusOK && got.code == invalidParams &&
			got.data.Field != "" {
			continue
		}
		if got.status != http.StatusOK || got.code != 0 {
			t.Errorf("%s: %d %.300s", name, got.status, got.body)
		}
	}
}

// Unknown paths and methods (S-16) reach nothing.
func TestUnknownPathsAreRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	before := c.rows()
	for _, path := range []string{
		"/..%2f", "//", "/./", "/%00", "/agents/../", "/agents/..%2fecho", "/agents/echo/../../", "/agents/nope",
		"/agents/", "/agents//", "/agents/echo/x", "/v1/tasks",
		"/agents/echo%00", "/agents/ECHO", "/../../etc/passwd", "/.well-known/../agents/echo",
		"/" + strings.Repeat("a", 8<<10), "/debug/pprof/", "/livez", "/agents/echo;x=1",
	} {
		got := c.post(a, path, message(""))
		if got.status != http.StatusNotFound && got.status != http.StatusBadRequest &&
			got.status != http.StatusMethodNotAllowed {
			t.Errorf("POST %.60s: %d %.200s", path, got.status, got.body)
		}
	}
	// GET answers with the card; see TestCardAtTheAgentsURL.
	for _, method := range []string{"PUT", "PATCH", "DELETE", "TRACE", "OPTIONS", "FOO"} {
		for _, path := range []string{"/", "/agents/echo"} {
			got := c.do(a, method, path, strings.NewReader(message("")), "X-HTTP-Method-Override", "POST")
			options := method == "OPTIONS" && got.status == http.StatusNoContent // the allowed methods
			if got.status != http.StatusNotFound && got.status != http.StatusMethodNotAllowed && !options {
				t.Errorf("%s %s: %d %.200s", method, path, got.status, got.body)
			}
		}
	}
	if after := c.rows(); after != before {
		t.Errorf("left %d rows", after-before)
	}
}

// Connections that do not speak proper HTTP (S-10, S-12, S-13) are closed.
func TestMisbehavingConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_READ_HEADER_TIMEOUT=4s", "A2AD_READ_TIMEOUT=5s", "A2AD_HTTP_IDLE_TIMEOUT=4s",
		"A2AD_MAX_BODY=64KiB")
	before := c.rows()
	const start = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	good := message("")
	length := func(n int) string { return "Content-Length: " + strconv.Itoa(n) + "\r\n" }
	for _, tc := range []struct {
		name, text string
		status     []string // empty: the connection is closed without an answer
	}{
		// truncated JSON; the rest is not a request
		{"body longer than announced", start + length(len(good)-5) + "\r\n" + good, []string{"200 OK"}},
		{"body shorter than announced", start + length(len(good)+5) + "\r\n" + good,
			[]string{"200 OK", "400 Bad Request", "408 Request Timeout", ""}},
		{"two lengths", start + length(5) + length(6) + "\r\n" + good, []string{"400 Bad Request"}},
		{"length and chunks", start + length(len(good)) + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			[]string{"200 OK", "400 Bad Request"}},
		{"two encodings", start + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
			[]string{"400 Bad Request", "501 Not Implemented"}},
		{"negative length", start + length(-1) + "\r\n", []string{"400 Bad Request"}},
		{"a body without end", start + "Transfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("1000\r\n"+strings.Repeat("x", 4096)+"\r\n", 100), []string{"413 Request Entity Too Large"}},
		{"a thousand headers", start + strings.Repeat("X-Header: "+strings.Repeat("x", 60)+"\r\n", 1000) + "\r\n",
			[]string{"431 Request Header Fields Too Large"}},
		{"a large header", start + "X-Header: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
			[]string{"431 Request Header Fields Too Large"}},
		{"a large request line", "POST /" + strings.Repeat("x", 1<<20) + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
			[]string{"431 Request Header Fields Too Large", "414 Request URI Too Long"}},
		{"no host", "POST / HTTP/1.1\r\n\r\n", []string{"400 Bad Request: missing required Host header"}},
		{"a header that never ends", "POST / HTTP/1.1\r\nHost:", []string{"", "408 Request Timeout"}},
		{"nothing at all", "", []string{""}},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", []string{"", "400 Bad Request"}},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
			[]string{"", "400 Bad Request", "404 Not Found", "505 HTTP Version Not Supported"}},
		{"a header in a header", start + "X-A: b\rX-B: c\r\n" + length(len(good)) + "\r\n" + good,
			[]string{"400 Bad Request"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			began := time.Now()
			answer := a.exchange(tc.text)
			logTook(t, "the cut", time.Since(began))
			if got := statusOf(answer); !slices.Contains(tc.status, got) {
				t.Errorf("answered %q, want one of %q", got, tc.status)
			}
			if strings.Contains(answer, "-32603") {
				t.Errorf("answered %s", answer)
			}
		})
	}
	if after := c.rows(); after != before {
		t.Errorf("left %d rows", after-before)
	}
	if got := c.post(a, "/", good); got.status != http.StatusOK || got.code != 0 {
		t.Errorf("the server does not serve any more: %d %s", got.status, got.body)
	}
}

// S-17 and S-18: text cannot break out of its line in streams and logs.
func TestTextCannotBreakOutOfItsLine(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	const evil = `x\r\n\r\nid: 9-00000000\ndata: {}\n\n\u2028\u2029\u0085\u001b[31m\u0007`
	script := `{"op":"artifact","id":"` + evil + `","text":"` + evil + `"},{"op":"complete","text":"` + evil + `"}`
	body := request("message/stream", `{"message":{"messageId":"`+evil+`","contextId":"`+evil+
		`","role":"user","parts":[{"kind":"data","data":{"script":[`+script+`]}}]}}`)
	got := c.post(a, "/agents/script", body)
	stream := parseStream(got.body)
	if len(stream.Frames) != 4 {
		t.Errorf("%d events, want 4: %s", len(stream.Frames), got.body)
	}
	for _, line := range strings.Split(string(got.body), "\n") {
		if strings.Contains(line, "\r") || line != "" && !strings.HasPrefix(line, "id: ") &&
			!strings.HasPrefix(line, "data: {") && !strings.HasPrefix(line, ": ping") {
			t.Errorf("a line of the stream is %q", line)
		}
	}
	for _, ev := range stream.Frames {
		if !strings.Contains(string(ev.Result), "9-00000000") {
			t.Errorf("the text is missing: %s", ev.Result)
		}
	}

	long := strings.Repeat("l", 1<<20)
	c.post(a, "/", request(evil+long, "{}"))
	c.post(a, "/", request("tasks/get", `{"id":"`+evil+long+`"}`))
	c.post(a, "/", message(`,"taskId":"`+evil+long+`"`), "User-Agent", "\t[31m")
	c.post(a, "/agents/"+strings.Repeat("p", 16<<10), "{}")
	send(t, c.client(a, "script"), play(`{"op":"fail","text":"`+evil+`"}`))
	if _, err := c.client(a, "script").Get(bounded(t), "x\r\n\x1b[31m", -1); !refused(err, taskNotFound) {
		t.Errorf("get: %v", err)
	}
	c.awaitRest()
	a.log.checkLines(t)
}

// checkLines fails for log lines that are not JSON or too long to be read.
func (b *logbook) checkLines(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.plain {
		t.Errorf("a line of the log is not JSON: %q", line)
	}
	for _, l := range b.lines {
		for key, v := range l {
			if s, ok := v.(string); ok && len(s) > 2048 {
				t.Errorf("%s in the log has %d bytes", key, len(s))
			}
		}
	}
}
