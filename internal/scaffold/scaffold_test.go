package scaffold_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/scaffold"
)

// clone makes a directory with the files that mark a clone.
func clone(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	for _, file := range []string{"sdk/python/pyproject.toml", "sdk/typescript/package.json", "sdk/go/go.mod"} {
		write(t, filepath.Join(dir, file), read(t, "../..", file))
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEachLanguageHasTheFilesOfAProject(t *testing.T) {
	t.Parallel()
	for _, language := range scaffold.Languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			from := clone(t, "clone")
			dir := filepath.Join(from, "new", "greeter")
			name := strings.Repeat("x", 64) // the longest
			names, err := scaffold.Write(scaffold.Project{
				Name: name, Language: language, Dir: dir, Clone: from, Program: "a2ad",
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"README.md", "agent.yaml", ".gitignore"} {
				if !slices.Contains(names, want) {
					t.Errorf("no %s in %v", want, names)
				}
			}
			checked := agents.Check(filepath.Join(dir, "agent.yaml"))
			if len(checked) != 1 || len(checked[0].Faults)+len(checked[0].Warnings) > 0 {
				t.Errorf("agent.yaml has faults: %+v", checked)
			}
			for _, file := range names {
				for line := range strings.Lines(read(t, dir, file)) {
					if strings.Contains(line, "{{") || strings.Contains(line, "<no value>") {
						t.Errorf("%s is not filled in: %s", file, line)
					}
				}
			}
			if !strings.Contains(read(t, dir, "README.md"), "\na2ad send --agent "+name+" Ann\n") {
				t.Error("the README does not call the agent")
			}
		})
	}
}

func TestPathsAreThoseFromTheProject(t *testing.T) {
	t.Parallel()
	from := clone(t, "a clone's")
	target := filepath.Join(from, "deep", "er")
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(from, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	// ".." of the project is not the directory of the link.
	dir := filepath.Join(link, "greeter")
	text := goMod(t, dir, from, filepath.Join(from, "bin", "a2ad"))
	if !strings.HasSuffix(text, " => ../../../sdk/go\n") {
		t.Errorf("go.mod has another path:\n%s", text)
	}
	if text := read(t, dir, "README.md"); !strings.Contains(text, "\n../../../bin/a2ad dev ") {
		t.Errorf("the README has another path:\n%s", text)
	}

	elsewhere := filepath.Join(t.TempDir(), "a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/u/v/w/x/y/z/1/2/3/4/5/6/7/8/9")
	if text := goMod(t, elsewhere, from, "a2ad"); !strings.HasSuffix(text, ` => "`+from+`/sdk/go"`+"\n") {
		t.Errorf("go.mod does not have the absolute path, which is shorter:\n%s", text)
	}
}

// goMod makes a project in Go and returns its go.mod.
func goMod(t *testing.T, dir, from, program string) string {
	t.Helper()
	p := scaffold.Project{Name: "greeter", Language: "go", Dir: dir, Clone: from, Program: program}
	if _, err := scaffold.Write(p); err != nil {
		t.Fatal(err)
	}
	return read(t, dir, "go.mod")
}

func TestNoFileIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "notes.txt"), "other files do not matter")
	write(t, filepath.Join(dir, "README.md"), "mine")
	if err := os.Symlink("nowhere", filepath.Join(dir, "test.sh")); err != nil {
		t.Fatal(err)
	}
	_, err := scaffold.Write(scaffold.Project{Name: "greeter", Language: "shell", Dir: dir, Program: "a2ad"})
	var exists *scaffold.ExistsError
	if !errors.As(err, &exists) || len(exists.Files) != 2 {
		t.Fatalf("Write = %v, want both files that exist", err)
	}
	if got := read(t, dir, "README.md"); got != "mine" {
		t.Errorf("README.md is %q", got)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}

func TestAFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	_, err := scaffold.Write(scaffold.Project{
		Name: "greeter", Language: "cobol", Dir: filepath.Join(top, "a", "b"), Program: "a2ad",
	})
	if err == nil {
		t.Fatal("Write accepts any language")
	}
	write(t, filepath.Join(top, "file"), "")
	_, err = scaffold.Write(scaffold.Project{
		Name: "greeter", Language: "shell", Dir: filepath.Join(top, "file", "b"), Program: "a2ad",
	})
	if err == nil {
		t.Fatal("Write makes directories below a file")
	}
	if entries, err := os.ReadDir(top); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestOnlyAClonesOwnLibrariesCount(t *testing.T) {
	t.Parallel()
	from, other := clone(t, "clone"), t.TempDir()
	for _, file := range []string{"sdk/python/pyproject.toml", "sdk/typescript/package.json", "sdk/go/go.mod"} {
		write(t, filepath.Join(other, file), "module example.org/other\n")
	}
	for _, language := range []string{"python", "typescript", "go"} {
		if !scaffold.HasLibrary(from, language) {
			t.Errorf("the clone has no library for %s", language)
		}
		if scaffold.HasLibrary(other, language) || scaffold.HasLibrary(from+"/sdk", language) {
			t.Errorf("another project has a library for %s", language)
		}
	}
}

// Such names look like other values of YAML, or are no names of modules.
func TestOddNamesMakeReadableFiles(t *testing.T) {
	t.Parallel()
	from := clone(t, "clone")
	for _, name := range []string{"0", "007", "0x1F", "1_000", "1e5", "true", "null", "No", "con", "2024-01-01"} {
		for _, language := range scaffold.Languages {
			dir := filepath.Join(t.TempDir(), "project")
			p := scaffold.Project{Name: name, Language: language, Dir: dir, Clone: from, Program: "a2ad"}
			if _, err := scaffold.Write(p); err != nil {
				t.Fatal(err)
			}
			checked := agents.Check(filepath.Join(dir, "agent.yaml"))
			if len(checked) != 1 || len(checked[0].Faults) > 0 || checked[0].Agent.Name != name {
				t.Errorf("%s, %s: agent.yaml has faults: %+v", name, language, checked)
			}
			if language == "go" && !strings.HasPrefix(read(t, dir, "go.mod"), "module example.com/"+name+"-agent\n") {
				t.Errorf("%s: the module has another path:\n%s", name, read(t, dir, "go.mod"))
			}
		}
	}
}

func TestPathsThatPackagesCannotReferToAreRefused(t *testing.T) {
	t.Parallel()
	for language, names := range map[string][]string{
		"python": {"semi;x", "ha #sh", "dol${HOME}x", "line\nend"},
		"go":     {`back\slash`, "line\nend"}, "typescript": {"line\nend"},
	} {
		for _, name := range names {
			from := clone(t, name)
			dir := filepath.Join(filepath.Dir(from), "project")
			_, err := scaffold.Write(scaffold.Project{
				Name: "greeter", Language: language, Dir: dir, Clone: from, Program: "a2ad",
			})
			if err == nil || !strings.Contains(err.Error(), language+" packages cannot refer to the path") {
				t.Errorf("%s, %q: %v", language, name, err)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s, %q: the directory of the project remains", language, name)
			}
		}
	}
	from := clone(t, "com,ma")
	text := goMod(t, filepath.Join(filepath.Dir(from), "project"), from, "a2ad")
	if !strings.HasSuffix(text, ` => "../com,ma/sdk/go"`+"\n") {
		t.Errorf("a comma is not quoted:\n%s", text)
	}
}

func TestDirectoriesThatCannotBeMade(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	write(t, filepath.Join(top, "file"), "")
	for name, target := range map[string]string{"dangling": "nothing", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]string{
		"file":       "file is not a directory",
		"file/x":     "file/x",
		"dangling/x": "dangling is a link to nothing",
		"dangling":   "dangling is a link to nothing",
		"loop":       "loop",
	} {
		p := scaffold.Project{Name: "greeter", Language: "shell", Dir: filepath.Join(top, dir), Program: "a2ad"}
		if _, err := scaffold.Write(p); err == nil || !strings.Contains(err.Error(), filepath.Join(top, want)) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// What the test in the project does not try.
func TestShellAgentReadsOddRuns(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("jq"); err != nil {
		if os.Getenv("CI") != "" { // .ci/run installs it
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir := t.TempDir()
	if _, err := scaffold.Write(scaffold.Project{Name: "greeter", Language: "shell", Dir: dir}); err != nil {
		t.Fatal(err)
	}
	const composed = `"steps": [{"key": "compose#1", "result": ""}, {"key": "louder#1", "result": {"messageId": "m2"}}]`
	long := strings.Repeat("x", 200<<10) // longer than an argument may be
	const said = `{"artifactUpdate":{"artifact":{"artifactId":"loud"`
	first := func(parts string) string { return `{"messages": [{"parts": [` + parts + `]}]}` }
	answer := func(parts string) string {
		return `{"messages": [{"messageId": "m2", "parts": [` + parts + `]}], ` + composed + `}`
	}
	for run, want := range map[string]string{
		first(`{"text": "` + long + `"}`):                               `"result":"Hello, ` + long + `!"`,
		first(`{"data": 1}, {"text": "-n \"A\\n\" $x"}, {"text": "B"}`): `"Hello, -n \"A\\n\" $x B!"`,
		// an empty result is a result
		answer(`{"text": "no"}`): `{"statusUpdate"`,
		// the server takes each of these for "yes"
		answer(`{"text": " yes\n"}`):                                said,
		answer(`{"text": ""}, {"text": "yes"}`):                     said,
		answer(`{"data": {}}, {"text": "yes"}`):                     said,
		answer(`]}, {"messageId": "m2", "parts": [{"text": "yes"}`): said,
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "agent.sh"))
		cmd.Stdin = strings.NewReader(run)
		out, err := cmd.CombinedOutput()
		where := strings.Index(string(out), want)
		if err != nil || where < 0 || strings.HasPrefix(want, "{") && where > 0 {
			t.Errorf("%.200s: %v\n%.500s\nwant %.100s", run, err, out, want)
		}
	}
}
