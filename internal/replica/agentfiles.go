package replica

import (
	"errors"
	"fmt"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/config"
)

// LoadAgents reads the agent files, adds the built-in agents whose names are free, and decides which
// agent is the default.
func LoadAgents(cfg *config.Config, builtin []agents.File) ([]agents.File, error) {
	var files []agents.File
	if cfg.Agents != "" {
		var err error
		if files, err = agents.Load(cfg.Agents); err != nil {
			return nil, err
		}
	}
	used := make(map[string]bool)
	for _, f := range files {
		used[f.Agent.Name] = true
	}
	own := len(files)
	for _, f := range builtin {
		if !used[f.Agent.Name] {
			f.Agent.Default = false
			files = append(files, f)
		}
	}
	return files, chooseDefault(files, own, cfg.DefaultAgent)
}

// CheckAgents returns the faults of the agent files, to be reported with those of the settings.
func CheckAgents(cfg *config.Config, builtin []agents.File) []config.Fault {
	_, err := LoadAgents(cfg, builtin)
	var wrong agents.Faults
	var unknown *noSuchAgentError
	switch {
	case errors.As(err, &wrong):
		faults := make([]config.Fault, len(wrong))
		for i, f := range wrong {
			faults[i] = config.Fault{Name: "A2AD_AGENTS", Text: f.String()}
		}
		return faults
	case errors.As(err, &unknown):
		return []config.Fault{{Name: "A2AD_DEFAULT_AGENT", Text: unknown.text()}}
	}
	return nil
}

// chooseDefault marks the agent that answers at /: the wanted one, or else the one whose file says so,
// or else the only one of the operator's own, or else echo.
func chooseDefault(files []agents.File, own int, wanted string) error {
	if wanted == "" {
		for _, f := range files {
			if f.Agent.Default {
				return nil
			}
		}
		if wanted = "echo"; own == 1 {
			wanted = files[0].Agent.Name
		}
	}
	found := false
	for i := range files {
		files[i].Agent.Default = files[i].Agent.Name == wanted
		found = found || files[i].Agent.Default
	}
	if !found {
		return &noSuchAgentError{wanted}
	}
	return nil
}

// noSuchAgentError says that the default agent does not exist.
type noSuchAgentError struct{ name string }

func (e *noSuchAgentError) Error() string { return "A2AD_DEFAULT_AGENT: " + e.text() }

func (e *noSuchAgentError) text() string {
	return fmt.Sprintf("no agent is called %s; mark one file with default: true, or name one", e.name)
}
