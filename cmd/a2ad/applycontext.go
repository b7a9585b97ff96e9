package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/contexts"
)

// contextVariable names the context of one command. Without it, commands use the current context.
const contextVariable = "A2AD_CONTEXT"

// place is a setting that says where a command works.
type place struct{ flag, variable string }

var (
	placeURL      = place{"url", "A2AD_URL"}
	placeServer   = place{"server", "A2AD_SERVER"}
	placeDatabase = place{"database-url", "A2AD_DATABASE_URL"}
	placeDataDir  = place{"data-dir", "A2AD_DATA_DIR"} // the database of dev
)

// placed is a command that works where a context says.
type placed interface{ places() []place }

func (*Database) places() []place  { return []place{placeDatabase, placeDataDir} }
func (*Service) places() []place   { return []place{placeServer, placeDatabase, placeDataDir} }
func (*DoctorCmd) places() []place { return []place{placeServer, placeDatabase, placeDataDir} }
func (*SendCmd) places() []place   { return []place{placeURL} }

// applyContext adds the settings of the context to the environment. A context is used only if nothing else says where
// the command works, so that a key never goes to another server than its own.
func applyContext(cmd any, flags config.Flags, env config.Environ) (config.Environ, error) {
	c, ok := cmd.(placed)
	if !ok {
		return env, nil
	}
	for _, p := range c.places() {
		if flags[p.flag] != "" || cmp.Or(env[p.variable], env[p.variable+"_FILE"]) != "" {
			return env, nil
		}
	}
	file, err := contexts.Load(contexts.Path(func(name string) string { return env[name] }))
	if err != nil {
		return nil, err
	}
	name := cmp.Or(env[contextVariable], file.Current)
	if name == "" {
		return env, nil
	}
	chosen, err := file.Get(name)
	if err != nil {
		return nil, err
	}
	serves := func(p place) bool { return slices.Contains(c.places(), p) }
	env = maps.Clone(env)
	switch {
	case chosen.Database != "" && serves(placeDatabase):
		env[placeDatabase.variable] = chosen.Database
		return env, nil
	case chosen.Database != "":
		return nil, fmt.Errorf("context %s is a database, and this command needs a server: use --url", name)
	case serves(placeServer):
		env[placeServer.variable] = chosen.Server
	case serves(placeURL):
		env[placeURL.variable] = chosen.Server
	default:
		return nil, fmt.Errorf("context %s is a server, and this command needs a database: set A2AD_DATABASE_URL", name)
	}
	if cmp.Or(env["A2AD_API_KEY"], env["A2AD_API_KEY_FILE"]) == "" {
		env["A2AD_API_KEY"] = chosen.APIKey
	}
	return env, nil
}
