package agents

import (
	"path/filepath"
	"slices"
)

// Keys decodes a file and returns the keys, and other names of keys, that each mapping in it may have.
func Keys(path string, data []byte) (map[string][]string, []Fault) {
	keys := map[string][]string{}
	d := decoder{path: path, note: func(what string, fields []field) {
		var names []string
		for _, f := range fields {
			names = append(names, f.name)
			if f.alias != "" {
				names = append(names, f.alias)
			}
		}
		slices.Sort(names)
		keys[what] = names
	}}
	d.decode(data)
	return keys, d.faults
}

// JSON returns the same file as JSON.
func JSON(path string, data []byte) ([]byte, error) {
	parse := parseYAML
	if filepath.Ext(path) == ".json" {
		parse = parseJSON
	}
	n, err := parse(data)
	if err != nil {
		return nil, err
	}
	var d decoder
	text, _ := d.json(n, "file")
	return text, nil
}
