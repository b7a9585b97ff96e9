package rpc_test

import (
	"net/http"
	"strings"
	"testing"
)

// A total that could not be counted in time is marked with a header: the schema requires a total,
// and has no member for its accuracy.
func TestEstimatedTotalIsMarked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	modern := http.Header{"A2a-Version": {"1.0"}}
	for range 2 {
		send(t, s.Server, http.MethodPost, "/agents/script/message:send",
			`{"message":{"messageId":"m","role":"ROLE_USER","contextId":"c","parts":[{"data":{"op":"complete"}}]}}`,
			modern)
	}
	list := func(want string) {
		t.Helper()
		got := send(t, s.Server, http.MethodGet, "/agents/script/tasks?contextId=c&pageSize=1", "", modern)
		if got.status != http.StatusOK || !strings.Contains(got.body, `"totalSize":2`) ||
			got.header.Get("A2AD-Total-Size") != want {
			t.Errorf("got header %q, want %q; status %d, %s",
				got.header.Get("A2AD-Total-Size"), want, got.status, got.body)
		}
	}
	list("")
	for _, q := range []string{
		`CREATE FUNCTION a2a.slow(uuid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
			IF current_setting('statement_timeout') = '20s' THEN
				RAISE EXCEPTION 'too long' USING ERRCODE = '57014';
			END IF;
			RETURN true;
		END $$`, // a count may take a third of 15 s
		"CREATE POLICY slow ON a2a.tasks AS RESTRICTIVE FOR SELECT TO a2a_app USING (a2a.slow(id))",
	} {
		if _, err := s.db.Pool(t).Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	list("estimate")
}
