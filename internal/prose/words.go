package prose

import (
	"fmt"
	"os"

	"github.com/dlclark/regexp2"
	"github.com/goccy/go-yaml"
)

// Words is a list of expressions to avoid. It is safe for concurrent use.
type Words struct {
	rules []rule
}

type rule struct {
	pattern *regexp2.Regexp
	instead string
}

// ReadWords reads a Vale rule of the kind "substitution". Its patterns look ahead, as Vale's regular expressions may
// and Go's may not.
func ReadWords(path string) (*Words, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Swap yaml.MapSlice `yaml:"swap"`
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(file.Swap) == 0 {
		return nil, fmt.Errorf("read %s: no words", path)
	}
	w := new(Words)
	for _, item := range file.Swap {
		pattern, err := regexp2.Compile(fmt.Sprint(item.Key), regexp2.IgnoreCase)
		if err != nil {
			return nil, fmt.Errorf("read %s: %q: %w", path, item.Key, err)
		}
		w.rules = append(w.rules, rule{pattern: pattern, instead: fmt.Sprint(item.Value)})
	}
	return w, nil
}

// Check returns a line for each expression of text that the list forbids.
func (w *Words) Check(text string) ([]string, error) {
	var found []string
	for _, r := range w.rules {
		m, err := r.pattern.FindStringMatch(text)
		for ; m != nil && err == nil; m, err = r.pattern.FindNextMatch(m) {
			found = append(found, fmt.Sprintf("write %q instead of %q", r.instead, m.String()))
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}
