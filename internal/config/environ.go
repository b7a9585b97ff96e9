package config

import (
	"regexp"
	"slices"
	"strings"
)

// Flags has the text of settings given as flags, by the name of the flag.
type Flags map[string]string

// Environ has the variables of the process.
type Environ map[string]string

// ReadEnviron reads a list in the form of os.Environ.
func ReadEnviron(environ []string) Environ {
	env := Environ{}
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	return env
}

// Lookup has the form of os.LookupEnv.
func (env Environ) Lookup(name string) (string, bool) {
	value, ok := env[name]
	return value, ok
}

// everySetting lists the settings of all commands.
func everySetting() []Setting {
	all := append(SettingsOf(&Config{}, false), SettingsOf(&ClientGroup{}, false)...)
	return append(all, SettingsOf(&OperatorGroup{}, false)...)
}

// otherVariables are A2AD_ names that are no settings: the choice of a context, and those of other programs: the build,
// the tests, and programs that run next to a server. Names that begin with testPrefix belong to them too.
var otherVariables = []string{"A2AD_CONTEXT", "A2AD_BIN", "A2AD_COMMIT", "A2AD_SECRETS", "A2AD_VERSION",
	"A2AD_DATABASE_HOSTS", "A2AD_SITE_REF", "A2AD_SNAPSHOT_OF_LINUX"}

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

// Unknown returns the A2AD_ names that are no settings, sorted.
func (env Environ) Unknown() []string {
	names := append(known(), otherVariables...)
	var out []string
	for name, value := range env {
		if !strings.HasPrefix(name, "A2AD_") || strings.HasPrefix(name, testPrefix) || slices.Contains(names, name) {
			continue
		}
		if !env.ofService(name, value) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// servicePort matches the end of the variables with which Kubernetes describes a service to a container. The name of
// the service comes first.
var servicePort = regexp.MustCompile(
	`_(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// ofService reports whether Kubernetes set a variable for a service whose name begins with a2ad. It
// sets all variables of a service or none, so a misspelled setting is still recognized.
func (env Environ) ofService(name, value string) bool {
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

// WithoutSecrets returns a list in the form of os.Environ without the variables that are secrets.
func (env Environ) WithoutSecrets(environ []string) []string {
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

// Suggest returns `, did you mean X?` if the name of one setting is close to name.
func Suggest(name string) string {
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

// nearestWords returns the setting whose name has all words of name, or has only words of name, if
// one fits better than all others.
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
