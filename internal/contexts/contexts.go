// Package contexts keeps the servers and databases that a person works with, by name, in a file of that person.
//
// It promises that only its owner can read the file, because it has keys, and that a write is whole or has not
// happened.
package contexts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Context says where commands work: on a server or on a database. It has one of them.
type Context struct {
	Server   string `json:"server,omitempty"` // base URL, without a slash at its end
	APIKey   string `json:"apiKey,omitempty"` // to sign in at the server; may be empty
	Database string `json:"databaseUrl,omitempty"`
}

// File is the contexts of a person. It is not safe for concurrent use.
type File struct {
	Current  string             `json:"current,omitempty"` // the context that is used when none is named; may be empty
	Contexts map[string]Context `json:"contexts"`

	path string
}

// Path returns where the file of a person is, or "" if the environment does not say. getenv has the form of os.Getenv.
func Path(getenv func(string) string) string {
	dir := getenv("XDG_CONFIG_HOME")
	switch {
	case filepath.IsAbs(dir):
	case getenv("HOME") != "":
		dir = filepath.Join(getenv("HOME"), ".config")
	case getenv("AppData") != "":
		dir = getenv("AppData")
	default:
		return ""
	}
	return filepath.Join(dir, "a2ad", "contexts.json")
}

// Load reads the file at path. A file that does not exist has no contexts.
func Load(path string) (*File, error) {
	f := &File{Contexts: map[string]Context{}, path: path}
	if path == "" {
		return f, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read contexts: %w", err)
	}
	if err := json.Unmarshal(text, f); err != nil {
		return nil, fmt.Errorf("read contexts: %s: %w", path, err)
	}
	if f.Contexts == nil { // the file has null
		f.Contexts = map[string]Context{}
	}
	return f, nil
}

// Names returns the names of the contexts, sorted.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

// Get returns the context of a name. Its error lists those that exist.
func (f *File) Get(name string) (Context, error) {
	c, ok := f.Contexts[name]
	switch {
	case ok:
		return c, nil
	case len(f.Contexts) == 0:
		return c, fmt.Errorf("context %s not found; there are none: see \"a2ad context add --help\"", name)
	}
	return c, fmt.Errorf("context %s not found; contexts here: %s", name, strings.Join(f.Names(), ", "))
}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Set adds or replaces a context. The first one becomes the current one.
func (f *File) Set(name string, c Context) error {
	if !validName.MatchString(name) {
		return errors.New("the name of a context has 1 to 63 letters, digits, dots, dashes and underscores, " +
			"and begins with a letter or a digit")
	}
	if len(f.Contexts) == 0 {
		f.Current = name
	}
	f.Contexts[name] = c
	return nil
}

// Remove removes a context.
func (f *File) Remove(name string) error {
	if _, err := f.Get(name); err != nil {
		return err
	}
	delete(f.Contexts, name)
	if f.Current == name {
		f.Current = ""
	}
	return nil
}

// Save writes the file, so that its owner alone can read it.
func (f *File) Save() (err error) {
	if f.path == "" {
		return errors.New("there is no place for contexts: set HOME or XDG_CONFIG_HOME")
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	dir := filepath.Dir(f.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	next, err := os.CreateTemp(dir, ".contexts-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	defer func() {
		if err != nil {
			_ = next.Close()
			_ = os.Remove(next.Name())
			err = fmt.Errorf("write contexts: %w", err)
		}
	}()
	if _, err = next.Write(append(text, '\n')); err != nil {
		return err
	}
	if err = next.Sync(); err != nil {
		return err
	}
	if err = next.Close(); err != nil {
		return err
	}
	return os.Rename(next.Name(), f.path)
}
