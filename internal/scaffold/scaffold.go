// Package scaffold writes the files of a new agent's project: the agent, its test, its agent file and a README. It
// writes all files or none, and never over a file that exists.
package scaffold

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"unicode"
)

// Languages are the values of Project.Language.
var Languages = []string{"python", "typescript", "go", "shell"}

// library is where the library of a language is in a clone, and a file with a line that no other library has.
type library struct{ dir, file, line string }

var libraries = map[string]library{
	"python":     {"sdk/python", "pyproject.toml", `name = "a2ad"`},
	"typescript": {"sdk/typescript", "package.json", `"name": "@a2ad/worker",`},
	"go":         {"sdk/go", "go.mod", "module github.com/a2ad/a2ad/sdk/go"},
}

// Project is what to write.
type Project struct {
	Name     string // of the agent; valid in an agent file
	Language string
	Dir      string // created if it does not exist
	Clone    string // of a2ad, with the libraries; not used by the language shell
	Program  string // how to call a2ad: a word that is on the PATH, or a path
}

// view is what the templates see of a project. Paths are those from its directory.
type view struct{ Name, Library, Program string }

//go:embed templates
var templates embed.FS

const (
	suffix = ".tmpl"     // of templates, so that no tool takes them for files of this repository
	dotted = "gitignore" // is written as .gitignore; a file of that name would also hide templates from git

	modeFile    = 0o644
	modeProgram = 0o755
	modeDir     = 0o755
)

var functions = template.FuncMap{
	"sh": shellWord, "mod": modWord, "yaml": yamlText, "json": jsonText,
}

// NeedsLibrary reports whether the language has a library, so that a project needs a clone.
func NeedsLibrary(language string) bool { return libraries[language] != library{} }

// HasLibrary reports whether dir is a clone that has the library of a language.
func HasLibrary(dir, language string) bool {
	l := libraries[language]
	text, err := os.ReadFile(filepath.Join(dir, l.dir, l.file))
	return err == nil && slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool {
		return strings.TrimSpace(line) == l.line
	})
}

// ExistsError says which files are in the way.
type ExistsError struct{ Files []string }

func (e *ExistsError) Error() string {
	return "these files exist: " + strings.Join(e.Files, ", ") + "; choose another directory with --dir"
}

// Write writes the files of a project and returns their names, sorted. If a file exists, it writes nothing and returns
// an *ExistsError. After another error it removes what it has written.
func Write(p Project) (names []string, err error) {
	made, err := makeDir(p.Dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			made.undo()
		}
	}()
	v, err := p.view()
	if err != nil {
		return nil, err
	}
	files, err := render(p.Language, v)
	if err != nil {
		return nil, err
	}
	if err := refuseExisting(p.Dir, files); err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := made.write(filepath.Join(p.Dir, f.name), f); err != nil {
			return nil, err
		}
		names = append(names, f.name)
	}
	return names, nil
}

// view makes the paths relative to the directory of the project, in which users paste commands, unless the absolute
// path is shorter. Links in the path of that directory are resolved: ".." does not lead back through a link.
func (p Project) view() (v view, err error) {
	dir, err := filepath.Abs(p.Dir)
	if err != nil {
		return v, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return v, err
	}
	v = view{Name: p.Name, Program: p.Program}
	if NeedsLibrary(p.Language) {
		if v.Library, err = shortest(dir, filepath.Join(p.Clone, libraries[p.Language].dir)); err != nil {
			return v, err
		}
		if err := readable(p.Language, v.Library); err != nil {
			return v, err
		}
	}
	if filepath.Base(p.Program) != p.Program {
		v.Program, err = shortest(dir, p.Program)
	}
	return v, err
}

// readable returns an error if a package file of the language cannot have the path of a library.
func readable(language, path string) error {
	unreadable := map[string][]string{"python": {";", " #", "${"}, "go": {`\`}}[language]
	if strings.ContainsFunc(path, unicode.IsControl) ||
		slices.ContainsFunc(unreadable, func(text string) bool { return strings.Contains(path, text) }) {
		return fmt.Errorf("%s packages cannot refer to the path %q; make a link to the clone, and use --clone",
			language, path)
	}
	return nil
}

// shortest returns the path of a file as seen from dir, with slashes. A relative one begins with "./" or "../".
func shortest(dir, path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(dir, path)
	if err != nil { // on another drive
		return filepath.ToSlash(path), nil
	}
	if rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		rel = "." + string(filepath.Separator) + rel
	}
	if len(path) < len(rel) {
		rel = path
	}
	return filepath.ToSlash(rel), nil
}

type file struct {
	name string
	text string
	mode fs.FileMode
}

func render(language string, v view) (files []file, err error) {
	dir := "templates/" + language
	entries, err := templates.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("unknown language %q", language)
	}
	for _, e := range entries {
		t, err := template.New(e.Name()).Funcs(functions).ParseFS(templates, dir+"/"+e.Name())
		if err != nil {
			return nil, err
		}
		var text strings.Builder
		if err := t.Execute(&text, v); err != nil {
			return nil, err
		}
		f := file{strings.TrimSuffix(e.Name(), suffix), text.String(), modeFile}
		if f.name == dotted {
			f.name = "." + dotted
		}
		if strings.HasPrefix(f.text, "#!") {
			f.mode = modeProgram
		}
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

func refuseExisting(dir string, files []file) error {
	var there []string
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.name)); err == nil {
			there = append(there, filepath.Join(dir, f.name))
		}
	}
	if len(there) > 0 {
		return &ExistsError{there}
	}
	return nil
}

// created is what to remove after an error: files and directories, in the order in which they were created.
type created []string

func (c *created) undo() {
	for _, path := range slices.Backward(*c) {
		_ = os.Remove(path) // the first error is reported; a directory that others use stays
	}
}

// makeDir creates a directory and its missing parents.
func makeDir(dir string) (created, error) {
	var missing []string
	for path := filepath.Clean(dir); ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() {
			return nil, fmt.Errorf("%s is not a directory", path)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if _, err := os.Lstat(path); err == nil {
			return nil, fmt.Errorf("%s is a link to nothing", path)
		}
		missing = append(missing, path)
	}
	var made created
	for _, path := range slices.Backward(missing) {
		if err := os.Mkdir(path, modeDir); err != nil {
			made.undo()
			return nil, err
		}
		made = append(made, path)
	}
	return made, nil
}

func (c *created) write(path string, f file) error {
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
	if err != nil {
		return err
	}
	*c = append(*c, path)
	_, err = w.WriteString(f.text)
	return errors.Join(err, w.Close())
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9._/@%+=:-]+$`)

// shellWord quotes a word for a POSIX shell, if it needs that.
func shellWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// modWord quotes a word for go.mod, if it needs that.
func modWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return strconv.Quote(word)
}

var yamlWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// yamlText writes the name of an agent, which may look like a number or another value.
func yamlText(name string) string {
	if name[0] > '9' && !slices.Contains(yamlWords, strings.ToLower(name)) {
		return name
	}
	return strconv.Quote(name)
}

func jsonText(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}
