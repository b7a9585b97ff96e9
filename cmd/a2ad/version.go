package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/a2ad/a2ad/internal/term"
)

// version and commit are set by the linker: -X main.version=0.2.0 -X main.commit=abc.
var (
	version = unversioned
	commit  string
)

const unversioned = "dev"

// VersionCmd is `a2ad version`.
type VersionCmd struct{ Output }

type versionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// readVersion prefers what the linker set over what the go command recorded.
func readVersion() versionInfo {
	v := versionInfo{Version: version, Commit: commit, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && v.Commit == "":
			v.Commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true" && commit == "":
			dirty = "+changes"
		}
	}
	if v.Commit != "" {
		v.Commit += dirty
	}
	if v.Version == unversioned && info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	return v
}

// Run prints the version.
func (c *VersionCmd) Run(app *App) error {
	v := readVersion()
	if c.json() {
		return term.JSON(app.Stdout, v)
	}
	commit := ""
	if v.Commit != "" {
		commit = " (" + v.Commit + ")"
	}
	_, err := fmt.Fprintf(app.Stdout, "a2ad %s%s %s %s/%s\n", v.Version, commit, v.Go, v.OS, v.Arch)
	return err
}
