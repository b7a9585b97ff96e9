#!/usr/bin/env bash
# Checks the Go library: tests under the race detector, and the module that users download.
#   scripts/sdk-go.sh -run TestSteps    # arguments go to `go test`
set -euo pipefail
cd "$(dirname "$0")/.."
export A2AD_BIN=${A2AD_BIN:-$PWD/bin/a2ad}
out=$(mktemp -d)
trap 'chmod -R u+w "$out"; rm -rf "$out"' EXIT # the module cache is read-only

(cd sdk/go && CGO_ENABLED=1 go test -race -count=1 "$@" ./...)

# Serve the committed module from files, and use it without the checkout, with the oldest Go that go.mod allows.
module=github.com/a2ad/a2ad/sdk/go
version=v0.0.0
files=$out/proxy/$module/@v
mkdir -p "$files" "$out/project"
git archive --format=zip --prefix="$module@$version/" -o "$files/$version.zip" HEAD:sdk/go
git show HEAD:sdk/go/go.mod >"$files/$version.mod"
echo "{\"Version\": \"$version\"}" >"$files/$version.info"
oldest=$(sed -n 's/^go //p' sdk/go/go.mod)
printf 'module example.com/hello\n\ngo %s\n' "$oldest" >"$out/project/go.mod"
cat >"$out/project/hello.go" <<'END'
package hello

import (
	"context"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

func hello(ctx context.Context, t *a2ad.Task) (any, error) {
	return nil, t.Write(ctx, "Hello, "+t.Message().Text()+"!")
}
END
cat >"$out/project/hello_test.go" <<'END'
package hello

import (
	"testing"

	"github.com/a2ad/a2ad/sdk/go/a2ad/a2adtest"
)

func TestHello(t *testing.T) {
	if _, err := a2adtest.CrashEverywhere(hello, "you", a2adtest.Client{}, nil); err != nil {
		t.Error(err)
	}
}
END
(
	cd "$out/project"
	go=$(GOTOOLCHAIN=go$oldest go env GOROOT)/bin/go # downloads it
	export GOTOOLCHAIN=local GOPROXY=file://$out/proxy GOSUMDB=off GOFLAGS=-mod=mod GOMODCACHE=$out/modules
	"$go" version
	"$go" get "$module@$version"
	"$go" vet ./...
	"$go" test ./...
	[[ $("$go" list -m all | wc -l) == 2 ]] || { echo "the module has requirements"; exit 1; }
)

go test ./internal/doctest -count=1 -run 'TestDocuments/sdk/go|TestNewAgents/go' # the commands of the README
