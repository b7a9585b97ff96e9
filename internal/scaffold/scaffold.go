// Package scaffold makes the files of a new agent: a project that runs, with an agent file, a test and a README, in one
// of several languages. It knows the files, and nothing of servers.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

// Languages are the names that Project.Lang may have.
var Languages = []string{"python", "typescript", "go", "shell"}

// Files that have .tmpl added to their names, so that no tool takes them for code of this repository.
//
//go:embed templates
var templates embed.FS

// Project is a new agent.
type Project struct {
	Name  string // of the agent
	Lang  string // one of Languages
	Clone string // of a2ad's repository, absolute: where the libraries are. Not needed for shell
	A2AD  string // how to call a2ad, in the instructions
}

// NeedsClone reports whether the project uses a library, which comes from a clone of the repository.
func (p Project) NeedsClone() bool { return p.Lang != "shell" }

// IsClone reports whether a directory has the libraries.
func IsClone(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "sdk", "go", "go.mod"))
	return err == nil
}

// Step is a command with which a user tries a project.
type Step struct{ Command, Does string }

// Steps are the commands that install, test and run the project, in its directory.
func (p Project) Steps() []Step {
	send := Step{p.A2AD + " send --agent " + p.Name + " Ann", "in another terminal: talks to the agent"}
	dev := Step{p.A2AD + " dev --agents agent.yaml", "starts a server"}
	switch p.Lang {
	case "python":
		return []Step{
			{"python3 -m venv .venv && .venv/bin/pip install -r requirements.txt", "installs the library"},
			{".venv/bin/python -m pytest", "tests the agent, without a server"},
			dev, {".venv/bin/python agent.py", "in a second terminal: runs the agent"}, send,
		}
	case "typescript":
		return []Step{
			{"(cd " + shellWord(p.library()) + " && npm ci && npm run build)", "builds the library, once"},
			{"npm install", "installs what the agent needs"},
			{"npm test", "tests the agent, without a server"},
			dev, {"npm start", "in a second terminal: runs the agent"}, send,
		}
	case "go":
		return []Step{
			{"go test ./...", "tests the agent, without a server"},
			dev, {"go run .", "in a second terminal: runs the agent"}, send,
		}
	}
	return []Step{
		{"./test.sh", "tests the agent, without a server"}, {dev.Command, "starts a server, which runs it"}, send,
	}
}

// library is the directory of the library in the clone.
func (p Project) library() string { return filepath.Join(p.Clone, "sdk", p.Lang) }

// shellWord quotes a text for a shell.
func shellWord(s string) string {
	const plain = "/._-+@%:=0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	if strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Write makes the files of the project in a directory, and returns their names. It makes the directory if there is
// none, and refuses one that has files already.
func (p Project) Write(dir string) (names []string, err error) {
	if err := empty(dir); err != nil {
		return nil, err
	}
	files, err := p.files()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	for name, text := range files {
		mode := fs.FileMode(0o666)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o777
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, mode); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// empty returns an error unless the directory is missing or empty.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%s is not empty: choose another directory with --dir", dir)
	}
	return nil
}

// files returns the texts of the files, by name.
func (p Project) files() (map[string][]byte, error) {
	root := path.Join("templates", p.Lang)
	entries, err := templates.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("the language %q has no templates", p.Lang)
	}
	t := template.New("").Funcs(template.FuncMap{"lower": strings.ToLower})
	files := make(map[string][]byte)
	for _, e := range entries {
		text, err := templates.ReadFile(path.Join(root, e.Name()))
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(e.Name(), ".tmpl")
		if name == "gitignore" {
			name = ".gitignore" // go:embed leaves out names that begin with a dot
		}
		parsed, err := t.New(name).Parse(string(text))
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		if err := parsed.Execute(&b, p.values()); err != nil {
			return nil, err
		}
		files[name] = b.Bytes()
	}
	return files, nil
}

// values are what the templates contain.
func (p Project) values() map[string]any {
	library := filepath.ToSlash(p.library())
	return map[string]any{
		"Name": p.Name, "Steps": p.Steps(), "Library": library,
		"LibraryURL": (&url.URL{Scheme: "file", Path: library}).String(),
	}
}
