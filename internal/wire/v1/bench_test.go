package v1_test

import (
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

func BenchmarkCodec(b *testing.B) {
	wiretest.Bench(b, codec, "SendMessage", map[string]string{
		"hello": `{"message":` + hello + `}`,
		"full":  fullSend,
		"34kB": `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"` + strings.Repeat("x", 34_000) +
			`"}]}}`,
	})
}
