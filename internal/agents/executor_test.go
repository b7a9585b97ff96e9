package agents_test

import (
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/agents"
)

func TestLoadReadsRemoteExecutors(t *testing.T) {
	t.Parallel()
	const head = "name: a\ndescription: d\nexecutor:\n"
	const remote = `
    headers: {x-team: words, X-Key: "a${KEY}b$$c"}
    bearer_env: TOKEN
    tls: {ca: ca.pem, cert: /c.pem, key: c.key, server_name: words.internal}
    connect_timeout: 5s
`
	for _, tc := range []struct {
		text     string
		want     func(dir string) agents.Spec
		warnings int
	}{
		{"  http:\n    url: https://h/run\n    cancel_url: https://h/stop\n    first_byte_timeout: 30s\n" +
			"    idle_timeout: 1m" + remote, func(dir string) agents.Spec {
			return agents.HTTP{Remote: remoteIn(dir), URL: "https://h/run", CancelURL: "https://h/stop",
				FirstByteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
		}, 0},
		{"  a2a:\n    card: https://h/card.json\n    version: 1.0\n    poll_interval: 2s\n    on_lost_task: fail\n" +
			"    allow_origins: [\"https://b:1\"]" + remote, func(dir string) agents.Spec {
			return agents.A2A{Remote: remoteIn(dir), Card: "https://h/card.json", AllowOrigins: []string{"https://b:1"},
				Version: "1.0", PollInterval: 2 * time.Second, OnLostTask: "fail"}
		}, 0},
		{"  pull: {}\n", func(string) agents.Spec { return agents.Pull{} }, 0},
		{"  http: {url: \"http://127.0.0.1:1\", bearer_env: T}\n", func(string) agents.Spec {
			return agents.HTTP{URL: "http://127.0.0.1:1", Remote: agents.Remote{BearerEnv: "T"}}
		}, 0},
		{"  http: {url: \"http://h\", headers: {Authorization: Basic x}}\n", func(string) agents.Spec {
			return agents.HTTP{URL: "http://h",
				Remote: agents.Remote{Headers: map[string]string{"Authorization": "Basic x"}}}
		}, 2},
	} {
		dir := write(t, "a.yaml", head+tc.text)
		files, err := agents.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want(dir), files[0].Executor); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.text, diff)
		}
		if len(files[0].Warnings) != tc.warnings {
			t.Errorf("%s: warnings %v, want %d", tc.text, files[0].Warnings, tc.warnings)
		}
	}
}

func remoteIn(dir string) agents.Remote {
	return agents.Remote{
		Headers: map[string]string{"X-Team": "words", "X-Key": "a${KEY}b$$c"}, BearerEnv: "TOKEN",
		ConnectTimeout: 5 * time.Second,
		TLS: agents.TLS{CA: filepath.Join(dir, "ca.pem"), Cert: "/c.pem", Key: filepath.Join(dir, "c.key"),
			ServerName: "words.internal"},
	}
}

func TestHeaderFillsInVariables(t *testing.T) {
	t.Parallel()
	env := map[string]string{"KEY": "k", "TOKEN": "t", "EMPTY": "", "LINES": "a\nb"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	r := remoteIn("/")
	got, err := r.Header(lookup)
	if want := (http.Header{"X-Team": {"words"}, "X-Key": {"akb$c"}, "Authorization": {"Bearer t"}}); err != nil ||
		!cmp.Equal(want, got) {
		t.Errorf("got %v, %v", got, err)
	}
	names := r.Variables()
	slices.Sort(names)
	if !slices.Equal(names, []string{"KEY", "TOKEN"}) {
		t.Errorf("variables %v", names)
	}
	for name, want := range map[string]string{
		"NONE": "bearer_env: the variable NONE is not set", "EMPTY": "bearer_env: the variable EMPTY is not set",
		"LINES": "bearer_env: the variable LINES contains a line break or another character that a header cannot " +
			"contain",
	} {
		if _, err := (agents.Remote{BearerEnv: name}).Header(lookup); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

func TestTLSConfigReadsTheFiles(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	srv.StartTLS()
	defer srv.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	dir := write(t, "ca.pem", string(ca), "junk.pem", "junk")
	get := func(keys agents.TLS) error {
		c, err := agents.Remote{TLS: keys}.TLSConfig()
		if err != nil {
			return err
		}
		transport := &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
		if err != nil {
			return err
		}
		resp, err := transport.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	for name, tc := range map[string]struct {
		keys agents.TLS
		want string // part of the error
	}{
		"trusted":      {agents.TLS{CA: dir + "/ca.pem", ServerName: "example.com"}, ""},
		"unknown":      {agents.TLS{}, "certificate signed by unknown authority"},
		"another name": {agents.TLS{CA: dir + "/ca.pem", ServerName: "example.org"}, "not example.org"},
		"no file":      {agents.TLS{CA: dir + "/none.pem"}, "tls.ca: open "},
		"junk":         {agents.TLS{CA: dir + "/junk.pem"}, "tls.ca: no certificate in "},
		"junk key":     {agents.TLS{Cert: dir + "/ca.pem", Key: dir + "/junk.pem"}, "tls.cert and tls.key: "},
	} {
		err := get(tc.keys)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
