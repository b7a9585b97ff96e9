package v03_test

import (
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

func BenchmarkCodec(b *testing.B) {
	wiretest.Bench(b, codec, "message/send", map[string]string{
		"hello": `{"message":` + hello + `}`,
		"full":  fullSend,
		"34kB": `{"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"` +
			strings.Repeat("x", 34_000) + `"}]}}`,
	})
}
