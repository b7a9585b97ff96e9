package agents

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Missing returns what an agent needs and this machine lacks: a program, a directory, a variable or
// a key file. lookup has the signature of os.LookupEnv.
func Missing(f File, lookup func(name string) (string, bool)) (warnings []Fault) {
	warn := func(format string, args ...any) {
		warnings = append(warnings, Fault{Path: f.Path, Text: fmt.Sprintf(format, args...)})
	}
	var remote Remote
	switch spec := f.Executor.(type) {
	case Exec:
		program := spec.Command[0]
		if strings.Contains(program, "/") && !filepath.IsAbs(program) {
			program = filepath.Join(spec.Dir, program)
		}
		if _, err := exec.LookPath(program); err != nil {
			warn("the program %s is not installed here; install it, or give the path of another", spec.Command[0])
		}
		if info, err := os.Stat(spec.Dir); err != nil || !info.IsDir() {
			warn("the directory %s does not exist here; create it", spec.Dir)
		}
		return warnings
	case HTTP:
		remote = spec.Remote
	case A2A:
		remote = spec.Remote
	default:
		return nil
	}
	for _, name := range remote.Variables() {
		if v, ok := lookup(name); !ok || v == "" {
			warn("the variable %s is not set here; set it where the server runs", name)
		}
	}
	if _, err := remote.TLSConfig(); err != nil {
		warn("%s", err)
	}
	return warnings
}
