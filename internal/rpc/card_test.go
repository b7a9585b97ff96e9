package rpc_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/rpc"
)

// signedIn is an authenticator that declares schemes.
type signedIn struct{ auth.Anonymous }

func (signedIn) Schemes() []a2a.SecurityScheme {
	return []a2a.SecurityScheme{
		{Name: "apiKey", Kind: a2a.SecurityAPIKey, Header: "X-API-Key", Description: "a key"},
		{Name: "bearer", Kind: a2a.SecurityBearer},
	}
}

func getCard(t *testing.T, change func(*rpc.Config), path string, header http.Header) (answer, map[string]any) {
	t.Helper()
	server := newBare(t, func(c *rpc.Config) {
		c.Authenticator = signedIn{}
		for _, a := range c.Agents {
			a.Card = a2a.Card{Name: a.Name, Version: "1.0.0", InputModes: []string{"*/*"},
				OutputModes: []string{"text/plain"}, Skills: []a2a.Skill{{ID: "s"}}}
		}
		if change != nil {
			change(c)
		}
	})
	got := send(t, server, http.MethodGet, path, "", header)
	var card map[string]any
	if err := json.Unmarshal([]byte(got.body), &card); err != nil {
		t.Fatalf("%v: %s", err, got.body)
	}
	return got, card
}

const cardPath = "/.well-known/agent-card.json"

// TestCardViews: each version has its own view, and clients that name no version get a combined
// one.
func TestCardViews(t *testing.T) {
	t.Parallel()
	of := func(v string) (answer, map[string]any) {
		return getCard(t, nil, cardPath, http.Header{"A2a-Version": {v}})
	}
	oldResp, oldCard := of("0.3")
	newResp, newCard := of("1.0")
	allResp, all := of("")
	etags := []string{oldResp.header.Get("ETag"), newResp.header.Get("ETag"), allResp.header.Get("ETag")}
	slices.Sort(etags)
	if len(slices.Compact(etags)) != 3 || etags[0] == "" {
		t.Errorf("etags %v", etags)
	}
	for _, resp := range []answer{oldResp, newResp, allResp} {
		if resp.header.Get("Vary") != "A2A-Version" || resp.header.Get("Cache-Control") != "public, max-age=300" {
			t.Errorf("header %v", resp.header)
		}
	}
	for _, member := range []string{"url", "preferredTransport", "additionalInterfaces", "protocolVersion", "security",
		"supportsAuthenticatedExtendedCard"} {
		if newCard[member] != nil || oldCard[member] == nil || all[member] == nil {
			t.Errorf("%s: in 0.3 %v, in 1.0 %v, in both %v", member, oldCard[member], newCard[member], all[member])
		}
	}
	for _, member := range []string{"supportedInterfaces", "securityRequirements"} {
		if newCard[member] == nil || oldCard[member] != nil || all[member] == nil {
			t.Errorf("%s: in 0.3 %v, in 1.0 %v, in both %v", member, oldCard[member], newCard[member], all[member])
		}
	}
	contains(t, "card", all, oldCard)
	contains(t, "card", all, newCard)
	want := []any{
		map[string]any{"url": "http://h/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
		map[string]any{"url": "http://h", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
		map[string]any{"url": "http://h/", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
		map[string]any{"url": "http://h", "protocolBinding": "HTTP+JSON", "protocolVersion": "0.3"},
	}
	if diff := cmp.Diff(want, newCard["supportedInterfaces"]); diff != "" {
		t.Errorf("interfaces: -want +got\n%s", diff)
	}
	wantOld := []any{map[string]any{"url": "http://h/", "transport": "JSONRPC"},
		map[string]any{"url": "http://h", "transport": "HTTP+JSON"}}
	if diff := cmp.Diff(wantOld, oldCard["additionalInterfaces"]); diff != "" {
		t.Errorf("interfaces of 0.3: -want +got\n%s", diff)
	}
	if oldCard["protocolVersion"] != "0.3.0" || oldCard["url"] != "http://h/" {
		t.Errorf("the 0.3 card is %v at %v", oldCard["protocolVersion"], oldCard["url"])
	}
	wantScheme := map[string]any{
		"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "a key",
		"apiKeySecurityScheme": map[string]any{"location": "header", "name": "X-API-Key", "description": "a key"},
	}
	if diff := cmp.Diff(wantScheme, all["securitySchemes"].(map[string]any)["apiKey"]); diff != "" {
		t.Errorf("scheme: -want +got\n%s", diff)
	}
}

// contains fails unless all has every member of part, at any depth.
func contains(t *testing.T, path string, all, part any) {
	t.Helper()
	members, ok := part.(map[string]any)
	if !ok {
		if diff := cmp.Diff(part, all); diff != "" {
			t.Errorf("%s: -part +all\n%s", path, diff)
		}
		return
	}
	for name, v := range members {
		object, _ := all.(map[string]any)
		contains(t, path+"."+name, object[name], v)
	}
}

func TestCardWithoutLegacyFields(t *testing.T) {
	t.Parallel()
	pure := func(c *rpc.Config) { c.PureCard = true }
	none, all := getCard(t, pure, cardPath, nil)
	named, newCard := getCard(t, pure, cardPath, http.Header{"A2a-Version": {"1.0"}})
	if diff := cmp.Diff(newCard, all); diff != "" || none.header.Get("ETag") != named.header.Get("ETag") {
		t.Errorf("-1.0 +none\n%s", diff)
	}
	if _, old := getCard(t, pure, cardPath, http.Header{"A2a-Version": {"0.3"}}); old["url"] != "http://h/" {
		t.Errorf("the 0.3 card has the url %v", old["url"])
	}
}

func TestCardOfAnUnsupportedVersionAndOfASingleVersion(t *testing.T) {
	t.Parallel()
	_, all := getCard(t, nil, cardPath, nil)
	for _, h := range []http.Header{{"A2a-Version": {"99.0"}}, {"A2a-Version": {"1.0", "0.3"}}} {
		if resp, got := getCard(t, nil, cardPath, h); !cmp.Equal(all, got) || resp.status != http.StatusOK {
			t.Errorf("%v: %d\n%s", h, resp.status, cmp.Diff(all, got))
		}
	}
	_, got := getCard(t, nil, cardPath+"?A2A-Version=1.0", nil)
	if got["url"] != nil || got["supportedInterfaces"] == nil {
		t.Errorf("by query: %v", got)
	}
	if _, got := getCard(t, func(c *rpc.Config) { c.V1 = nil }, cardPath, nil); got["supportedInterfaces"] != nil ||
		got["url"] != "http://h/" {
		t.Errorf("0.3 alone: %v", got)
	}
	if _, got := getCard(t, nil, "/agents/b"+cardPath, nil); got["name"] != "b" || got["url"] != "http://h/agents/b" {
		t.Errorf("another agent: %v", got)
	}
}

func TestUnchangedCardIsNotSentAgain(t *testing.T) {
	t.Parallel()
	server := newBare(t, nil)
	etag := send(t, server, http.MethodGet, cardPath, "", nil).header.Get("ETag")
	for v, want := range map[string]int{"": http.StatusNotModified, "1.0": http.StatusOK} {
		resp := send(t, server, http.MethodGet, cardPath, "", http.Header{"If-None-Match": {etag}, "A2a-Version": {v}})
		if resp.status != want {
			t.Errorf("version %q: %d", v, resp.status)
		}
	}
	if head := send(t, server, http.MethodHead, cardPath, "", nil); head.header.Get("ETag") != etag || head.body != "" {
		t.Errorf("HEAD: %v %q", head.header, head.body)
	}
}

// TestCardDates: cards have a date, for clients and caches without ETags. An ETag has precedence
// over a date.
func TestCardDates(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	get := func(header http.Header) answer { return send(t, s.Server, http.MethodGet, cardPath, "", header) }
	set := func(description string) {
		t.Helper()
		err := s.rpc.SetAgents([]*a2a.Agent{{Name: "script", Default: true, Card: a2a.Card{Description: description}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	first := get(nil)
	date := first.header.Get("Last-Modified")
	at, err := http.ParseTime(date)
	if err != nil || at.After(time.Now()) || time.Since(at) > time.Hour {
		t.Fatalf("Last-Modified: %q, %v", date, err)
	}
	later, earlier := at.Add(time.Hour).Format(http.TimeFormat), at.Add(-time.Second).Format(http.TimeFormat)
	const other = `"0123456789abcdef0123456789abcdef"`
	for _, tc := range []struct {
		date, tag string
		want      int
	}{
		{date, "", 304}, {later, "", 304}, {earlier, "", 200}, {"yesterday", "", 200}, {"", "", 200},
		{date, other, 200}, {later, other, 200}, {earlier, first.header.Get("ETag"), 304},
	} {
		header := http.Header{}
		if tc.date != "" {
			header.Set("If-Modified-Since", tc.date)
		}
		if tc.tag != "" {
			header.Set("If-None-Match", tc.tag)
		}
		got := get(header)
		if got.status != tc.want || got.header.Get("Last-Modified") != date ||
			got.header.Get("ETag") != first.header.Get("ETag") {
			t.Errorf("%q and tag %q: %d %v, want %d", tc.date, tc.tag, got.status, got.header, tc.want)
		}
	}
	// A card that does not change keeps its date.
	set("")
	if got := get(http.Header{"If-Modified-Since": {date}}); got.status != 304 {
		t.Errorf("an unchanged card after a reload: got %d", got.status)
	}
	// A changed card gets a later date, even within the same second.
	for _, description := range []string{"a", "b", "c"} {
		date := get(nil).header.Get("Last-Modified")
		set(description)
		got := get(http.Header{"If-Modified-Since": {date}})
		if got.status != 200 || !strings.Contains(got.body, `"description":"`+description+`"`) {
			t.Errorf("after a change to %s: got %d %s", description, got.status, got.body)
		}
	}
}

// TestURLOfAnAgentServesItsCard: clients such as CrewAI and the A2A inspector read the card at the
// URL of the agent.
func TestURLOfAnAgentServesItsCard(t *testing.T) {
	t.Parallel()
	server := newBare(t, nil)
	for path, of := range map[string]string{"/agents/b": "/agents/b", "/agents/b/": "/agents/b", "/": "", "": ""} {
		for _, version := range []string{"", "0.3", "1.0"} {
			header := http.Header{"A2a-Version": {version}}
			want := send(t, server, http.MethodGet, of+cardPath, "", header)
			got := send(t, server, http.MethodGet, path, "", header)
			if got.status != 200 || got.body != want.body || got.header.Get("ETag") != want.header.Get("ETag") ||
				got.header.Get("Content-Type") != "application/json" {
				t.Errorf("GET %s in %q: %d %v %s", path, version, got.status, got.header, got.body)
			}
			head := send(t, server, http.MethodHead, path, "", header)
			if head.status != 200 || head.body != "" || head.header.Get("ETag") != want.header.Get("ETag") {
				t.Errorf("HEAD %s in %q: %d %v", path, version, head.status, head.header)
			}
		}
	}
	if got := send(t, server, http.MethodGet, "/agents/nobody", "", nil); got.status != 404 {
		t.Errorf("an unknown agent: got %d %s", got.status, got.body)
	}
}
