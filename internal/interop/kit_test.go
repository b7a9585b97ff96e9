package interop

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The kits of a2aproject/a2a-tck assume this about the server under test. Their users run them against `a2ad dev
// --default-agent script`.
func TestServerIsReadyForConformanceKits(t *testing.T) {
	t.Parallel()
	p := newAddress(t, "--default-agent", "script", "--card-legacy-fields=off")
	call := func(path, version, method, params string) (result, fault map[string]any) {
		t.Helper()
		req, err := http.NewRequestWithContext(testContext(t), http.MethodPost, p.url()+path,
			strings.NewReader(`{"jsonrpc":"2.0","id":"x","method":"`+method+`","params":`+params+`}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if version != "" {
			req.Header.Set("A2A-Version", version)
		}
		resp, err := httpClient(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer struct{ Result, Error map[string]any }
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("POST %q %s: %s, %v", path, method, resp.Status, err)
		}
		return answer.Result, answer.Error
	}

	// The card is fetched without a version, strictly conforms to 1.0, and asks for no credentials (T-11).
	var card map[string]any
	if err := json.Unmarshal(unversioned(t, http.MethodGet, p.url()+"/.well-known/agent-card.json", ""),
		&card); err != nil {
		t.Fatal(err)
	}
	for _, member := range []string{"url", "preferredTransport", "protocolVersion", "additionalInterfaces",
		"securitySchemes", "securityRequirements", "security"} {
		if card[member] != nil {
			t.Errorf("the card has %s: %v", member, card[member])
		}
	}

	// Both spellings of the URL, and of members (T-17, 10-SE-02).
	for _, path := range []string{"", "/"} {
		if list, fault := call(path, "1.0", "ListTasks", `{"page_size":1,"history_length":0}`); fault != nil ||
			list["pageSize"] != 1.0 {
			t.Errorf("POST %q: %v, %v", path, list, fault)
		}
	}

	// Message ids select what happens (T-38), and may repeat (T-01).
	state := func(id string) any {
		result, fault := call("/", "1.0", "SendMessage",
			`{"message":{"messageId":"`+id+`","role":"ROLE_USER","parts":[{"text":"x"}]}}`)
		if fault != nil {
			t.Fatalf("%s: %v", id, fault)
		}
		if result["message"] != nil {
			return "a message"
		}
		return result["task"].(map[string]any)["status"].(map[string]any)["state"]
	}
	for range 2 {
		for id, want := range map[string]string{
			"tck-complete-task-s1": "TASK_STATE_COMPLETED", "tck-input-required-s1": "TASK_STATE_INPUT_REQUIRED",
			"tck-reject-task-s1":   "TASK_STATE_REJECTED",
			"tck-artifact-text-s1": "TASK_STATE_COMPLETED", "tck-message-response-s1": "a message",
			"anything else": "TASK_STATE_INPUT_REQUIRED",
		} {
			if got := state(id); got != want {
				t.Errorf("%s: %v, want %s", id, got, want)
			}
		}
	}

	// A receiver on this machine gets the webhook with its credentials unchanged (T-18, PUSH-DELIVER-001).
	type delivery struct{ authorization, body string }
	got := make(chan delivery, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- delivery{r.Header.Get("Authorization"), string(body)}
	}))
	defer receiver.Close()
	_, fault := call("/", "1.0", "SendMessage", `{
		"message":{"messageId":"tck-complete-task-push","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{
		"task_push_notification_config":{"url":"`+receiver.URL+`","authentication":{"scheme":"Bearer",`+
		`"credentials":"tck-secret"}}}}`)
	if fault != nil {
		t.Fatal(fault)
	}
	for {
		select {
		case d := <-got:
			if d.authorization != "Bearer tck-secret" || !strings.HasPrefix(d.body, `{"task":`) {
				t.Errorf("delivery %+v", d)
			}
			if !strings.Contains(d.body, "TASK_STATE_COMPLETED") {
				continue
			}
		case <-testContext(t).Done():
			t.Error("the receiver did not get the end")
		}
		break
	}

	// The kit of 0.3: requests without an id are answered, a delete has a result, a task is cancelable.
	task, fault := call("/", "", "message/send",
		`{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}}`)
	if fault != nil || task["status"].(map[string]any)["state"] != "input-required" {
		t.Fatalf("%v, %v", task, fault)
	}
	id := task["id"].(string)
	if answer := unversioned(t, http.MethodPost, p.url(),
		`{"jsonrpc":"2.0","method":"tasks/forget"}`); !strings.Contains(string(answer), `"id":null`) ||
		!strings.Contains(string(answer), "-32601") {
		t.Errorf("without an id: %s", answer)
	}
	deleted := unversioned(t, http.MethodPost, p.url(),
		`{"jsonrpc":"2.0","id":1,"method":"tasks/pushNotificationConfig/delete","params":{"id":"`+id+
			`","pushNotificationConfigId":"none"}}`)
	if !strings.Contains(string(deleted), `"result":null`) {
		t.Errorf("delete: %s", deleted)
	}
	if canceled, fault := call("/", "", "tasks/cancel", `{"id":"`+id+`"}`); fault != nil ||
		canceled["status"].(map[string]any)["state"] != "canceled" {
		t.Errorf("cancel: %v, %v", canceled, fault)
	}
}

// unversioned makes one request that names no version.
func unversioned(t *testing.T, method, url, body string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(testContext(t), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := httpClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
