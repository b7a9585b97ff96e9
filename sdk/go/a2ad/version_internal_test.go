package a2ad

import (
	"runtime/debug"
	"testing"
)

func TestUserAgentNamesTheVersionOfTheLibrary(t *testing.T) {
	t.Parallel()
	other := &debug.Module{Path: "example.org/other", Version: "v9.9.9"}
	for version, want := range map[string]string{"v1.2.3": "a2ad-go/1.2.3", "(devel)": "a2ad-go"} {
		info := &debug.BuildInfo{Deps: []*debug.Module{other, {Path: modulePath, Version: version}}}
		if got := nameOf(info); got != want {
			t.Errorf("version %s: %q, want %q", version, got, want)
		}
	}
	if got := nameOf(&debug.BuildInfo{Deps: []*debug.Module{other}}); got != "a2ad-go" {
		t.Errorf("from the source of the library: %q", got)
	}
}
