package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// teller is a speaker that returns an answer as it came over the network: status, headers and body,
// without what differs between any two requests. It reads a stream to its end or, if brief, up to
// its first item.
type teller interface {
	speaker
	tell(t *testing.T, op *operation, brief bool) told
}

// told is an answer.
type told struct {
	failed   bool   // it is an error
	unsigned bool   // the error says that the caller is not authenticated
	notFound bool   // the error says that there is no such thing
	raw      string // as received
	text     string // with ids numbered
}

// tellers are the clients of every version and binding. Add a new binding here.
func tellers(s *site, conn *grpc.ClientConn) map[string]teller {
	return map[string]teller{
		"1.0 JSON-RPC":    overRPC{s, dialects[1]},
		"0.3 JSON-RPC":    overRPC{s, dialects[0]},
		"1.0 REST":        overREST{s, "", wordsV1},
		"0.3 REST":        overREST{s, "/v1", wordsSchema},
		"0.3 REST, proto": overREST{s, "/v1", wordsProto},
		"1.0 gRPC":        overGRPC{conn, service1, wordsV1},
		"0.3 gRPC":        overGRPC{conn, service03, wordsProto},
	}
}

func (s overRPC) tell(t *testing.T, op *operation, brief bool) told {
	t.Helper()
	method, params := s.request(op)
	if op.name == "GetExtendedAgentCard" {
		method, params = map[bool]string{true: "GetExtendedAgentCard",
			false: "agent/getAuthenticatedExtendedCard"}[s.modern()], "{}"
	}
	resp := client{s.site, t, s.dialect}.post(method, params, op.header()) //nolint:bodyclose // tellHTTP closes it
	return tellHTTP(t, resp, brief)
}

func (s overREST) tell(t *testing.T, op *operation, brief bool) told {
	t.Helper()
	if op.name == "GetExtendedAgentCard" {
		path := map[bool]string{true: "/extendedAgentCard", false: "/card"}[s.modern()]
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+s.prefix+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = op.header()
		if s.modern() {
			req.Header.Set("A2A-Version", "1.0")
		}
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return tellHTTP(t, resp, brief)
	}
	resp, _ := s.send(t, op)
	return tellHTTP(t, resp, brief)
}

func (s overGRPC) tell(t *testing.T, op *operation, brief bool) told {
	t.Helper()
	c := caller{t, s.conn, s.service}
	method, params := s.request(op)
	if op.name == "GetExtendedAgentCard" {
		method, params = map[bool]string{true: "GetExtendedAgentCard", false: "GetAgentCard"}[s.modern()], "{}"
	}
	var raw strings.Builder
	var beside reply
	var end *status.Status
	if op.name == "SubscribeToTask" || op.name == "SendStreamingMessage" {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		m := c.follow(ctx, method, params, s.metadata(op)...)
		for item := m.next(); item != nil; item = m.next() {
			raw.Write(keySorted(t, item))
			if brief {
				m.end = status.New(codes.OK, "")
				break
			}
		}
		end = m.end
		if !brief || end.Code() != codes.OK {
			beside.trailer = m.stream.Trailer()
		}
		if end.Code() != codes.OK { // net/http cannot send challenges in a trailer
			beside.header, _ = m.stream.Header()
		}
	} else {
		var answer map[string]any
		if answer, beside, end = c.try(method, params, s.metadata(op)...); end.Code() == codes.OK {
			raw.Write(keySorted(t, answer))
		}
	}
	if end.Code() != codes.OK {
		fmt.Fprintf(&raw, "%s %s %v\n", end.Code(), end.Message(), end.Details())
	}
	header := make(http.Header)
	for name, values := range metadata.Join(beside.header, beside.trailer) {
		if name != "x-request-id" && name != "content-type" {
			header[http.CanonicalHeaderKey(name)] = values
		}
	}
	var text strings.Builder
	fmt.Fprintln(&text, map[codes.Code]int{codes.OK: 200, codes.ResourceExhausted: 429}[end.Code()])
	if err := header.Write(&text); err != nil {
		t.Fatal(err)
	}
	text.WriteString(raw.String())
	return told{
		failed:   end.Code() != codes.OK,
		unsigned: end.Code() == codes.Unauthenticated,
		notFound: grpcReason(end) == "TASK_NOT_FOUND",
		raw:      raw.String(),
		text:     numbered(text.String()),
	}
}

// keySorted sorts the members of an answer that has no fixed order.
func keySorted(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

var (
	anyTime    = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	anyEventID = regexp.MustCompile(`(?m)((?:^id: ?|^Last-Event-Id: |"eventId":")\d+)-[0-9a-f]{8}("|\r?$)`)
	firstItem  = regexp.MustCompile(`(?m)^data:.*\n\n`)
	anyToken   = regexp.MustCompile(`("next_?[pP]age_?[tT]oken": ?)"[^"]+"`)
)

// tellHTTP reads an answer. Ids become numbers, in the order of their first appearance.
func tellHTTP(t *testing.T, resp *http.Response, brief bool) told {
	t.Helper()
	defer resp.Body.Close()
	var body bytes.Buffer
	stream := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	buf := make([]byte, 4096)
	for !brief || !stream || !firstItem.Match(body.Bytes()) {
		n, err := resp.Body.Read(buf)
		body.Write(buf[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, own := range []string{"Date", "X-Request-Id"} {
		resp.Header.Del(own)
	}
	var text strings.Builder
	fmt.Fprintln(&text, resp.StatusCode)
	if err := resp.Header.Write(&text); err != nil {
		t.Fatal(err)
	}
	text.Write(body.Bytes())
	words := body.String()
	return told{
		failed:   resp.StatusCode >= 400 || strings.Contains(words, `"error":{`),
		unsigned: resp.StatusCode == http.StatusUnauthorized,
		notFound: strings.Contains(words, "TASK_NOT_FOUND"),
		raw:      words,
		text:     numbered(text.String()),
	}
}

// numbered removes from text what differs between any two requests.
func numbered(text string) string {
	var ids []string
	text = uuids.ReplaceAllStringFunc(text, func(id string) string {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		return fmt.Sprint("#", slices.Index(ids, id))
	})
	text = anyEventID.ReplaceAllString(anyTime.ReplaceAllString(text, "time"), "$1-uid$2")
	return anyToken.ReplaceAllString(text, `$1"token"`)
}
