package a2ad

import (
	"runtime/debug"
	"strings"
)

const modulePath = "github.com/a2ad/a2ad/sdk/go"

// userAgent returns the name of this library and its version, which operators see. A program that is built from the
// source of the library has no version of it.
func userAgent() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return nameOf(info)
	}
	return "a2ad-go"
}

func nameOf(program *debug.BuildInfo) string {
	for _, m := range program.Deps {
		if m.Path == modulePath && strings.HasPrefix(m.Version, "v") {
			return "a2ad-go/" + strings.TrimPrefix(m.Version, "v")
		}
	}
	return "a2ad-go"
}
