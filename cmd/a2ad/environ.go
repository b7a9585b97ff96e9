package main

import (
	"regexp"
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

// otherVariables are A2AD_ names of other programs: of the build, of the tests, and of what runs beside a server. Names that
// begin with testPrefix are too.
var otherVariables = []string{"A2AD_BIN", "A2AD_COMMIT", "A2AD_SECRETS", "A2AD_VERSION"}

const testPrefix = "A2AD_TEST_"

// known returns every name of a setting.
func known() []string {
	var names []string
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
	names := append(known(), otherVariables...)
	var out []string
	for name, value := range env {
		if strings.HasPrefix(name, "A2AD_") && !strings.HasPrefix(name, testPrefix) && !slices.Contains(names, name) && !env.ofService(name, value) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// servicePort is what Kubernetes tells containers about the ports of a service, after the service's name.
var servicePort = regexp.MustCompile(`_(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// ofService reports whether Kubernetes set a variable, because there is a service whose name begins with a2ad. It sets
// all of a service or none, so that a setting spelled like one of them is still told from it.
func (env environment) ofService(name, value string) bool {
	at := servicePort.FindStringIndex(name)
	if at == nil {
		return false
	}
	service := name[:at[0]]
	if _, ok := env[service+"_SERVICE_HOST"]; !ok {
		return false
	}
	return name != service+"_PORT" || strings.Contains(value, "://")
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

// suggest returns `, did you mean X?` if the name of one setting is close to name.
func suggest(name string) string {
	best, at := "", min(4, (len(name)-len("A2AD_"))/3+1)
	for _, k := range known() {
		if d := distance(name, k); d < at {
			best, at = k, d
		}
	}
	if best == "" {
		best = nearestWords(name)
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// nearestWords returns the setting whose name has all words of name, or the other way round, if one fits better than all
// others.
func nearestWords(name string) string {
	best, at := "", len(name)
	words := strings.Split(strings.TrimPrefix(name, "A2AD_"), "_")
	for _, k := range known() {
		others := strings.Split(strings.TrimPrefix(k, "A2AD_"), "_")
		if !within(words, others) && !within(others, words) {
			continue
		}
		switch d := max(len(words), len(others)) - min(len(words), len(others)); {
		case d < at:
			best, at = k, d
		case d == at:
			best = "" // either may have been meant
		}
	}
	return best
}

func within(words, others []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(others, w) })
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
