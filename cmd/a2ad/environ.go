package main

import (
	"slices"
	"strings"
)

// flagValues holds the text of settings given as flags, by flag name.
type flagValues map[string]string

// environment is the process environment.
type environment map[string]string

func readEnviron(environ []string) environment {
	env := environment{}
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	return env
}

// everySetting lists the settings of all commands.
func everySetting() []setting {
	return append(settingsOf(&Config{}, false), settingsOf(&ClientGroup{}, false)...)
}

// otherVariables are A2AD_ names that are not settings of the program.
var otherVariables = []string{"A2AD_TEST_DATABASE_URL"}

// known returns every A2AD_ name that means something.
func known() []string {
	names := slices.Clone(otherVariables)
	for _, s := range everySetting() {
		names = append(names, s.Name)
		if s.Secret {
			names = append(names, s.Name+"_FILE")
		}
	}
	return names
}

// unknown returns the A2AD_ names in the environment that mean nothing, sorted.
func (env environment) unknown() []string {
	names := known()
	var out []string
	for name := range env {
		if strings.HasPrefix(name, "A2AD_") && !slices.Contains(names, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// withoutSecrets drops our secrets from a list in the form of os.Environ.
func (env environment) withoutSecrets(environ []string) []string {
	secret := map[string]bool{}
	for _, s := range everySetting() {
		if s.Secret {
			secret[s.Name] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return secret[name]
	})
}

// suggest returns `, did you mean X?` if a known name is close to name.
func suggest(name string) string {
	best, at := "", min(4, (len(name)-len("A2AD_"))/3+1)
	for _, k := range known() {
		if d := distance(name, k); d < at {
			best, at = k, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
