package console

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

// awkward is text that a shell or a program could read as more than text.
const awkward = "it's $(touch x) `id` \"quoted\" \\ \u2028 \n </script>"

func TestShellExpandsNothing(t *testing.T) {
	t.Parallel()
	got, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+quoteShell(awkward)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != awkward {
		t.Errorf("the shell reads %q, want %q", got, awkward)
	}
}

func TestSnippetsSendTheMessage(t *testing.T) {
	t.Parallel()
	parts := []a2a.Part{
		{Kind: a2a.PartText, Text: awkward}, {Kind: a2a.PartData, Data: a2a.Raw(`{"a":1}`)},
		{Kind: a2a.PartFile, Text: "aGk=", Filename: "a.txt", MediaType: "text/plain"},
	}
	var sent struct {
		Params struct {
			Message struct {
				Parts []struct {
					Text, Raw, Filename string
					Data                map[string]int
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(requestOf(parts)), &sent); err != nil {
		t.Fatal(err)
	}
	got := sent.Params.Message.Parts
	if len(got) != 3 || got[0].Text != awkward || got[1].Data["a"] != 1 || got[2].Raw != "aGk=" ||
		got[2].Filename != "a.txt" {
		t.Errorf("the message has the parts %+v", got)
	}
	for _, open := range []bool{true, false} {
		for _, s := range snippetsOf("https://a2ad.example/", "support", open, parts) {
			if !strings.Contains(s.Code, "https://a2ad.example/agents/support") {
				t.Errorf("%s has the wrong address:\n%s", s.Name, s.Code)
			}
			if strings.Contains(s.Code, "A2AD_API_KEY") == open {
				t.Errorf("%s for an open server (%v):\n%s", s.Name, open, s.Code)
			}
			if strings.Contains(s.Code, "\u2028") && s.Name != "curl" {
				t.Errorf("%s has a character that ends a line", s.Name)
			}
		}
	}
	long := []a2a.Part{{Kind: a2a.PartText, Text: strings.Repeat("x", maxSnippet)}}
	if list := snippetsOf("", "x", true, long); list != nil {
		t.Error("a message that nobody can read is in a snippet")
	}
}
