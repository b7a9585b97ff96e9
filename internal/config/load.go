package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Value is a setting with what it was given.
type Value struct {
	Setting
	Given  string // text; "" if nothing was given and there is no default
	Source string // "flag --x", "env A2AD_X", "file /path", "default" or "" for unset
	Bad    bool   // Given has a fault; the field holds the default
}

// Shown returns the effective value without secrets.
func (v *Value) Shown() string {
	if v.Given == "" {
		return ""
	}
	if v.Secret {
		return v.masked()
	}
	if v.Bad {
		return strconv.Quote(v.Given)
	}
	return format(v.field)
}

func (v *Value) masked() string {
	if strings.HasSuffix(v.Name, "DATABASE_URL") {
		return MaskDSN(v.Given)
	}
	return redacted
}

// Fault is one thing that is wrong with the configuration.
type Fault struct {
	Name string // of the setting
	Text string // what is wrong, and how to fix it
	from string // value and source; see Locate
}

// String returns the setting, what it was given, and the text.
func (f Fault) String() string { return f.Name + f.from + ": " + f.Text }

// FaultsError has all faults of a configuration.
type FaultsError struct {
	Faults []Fault
	Hint   string // a line below them
}

func (e *FaultsError) Error() string {
	var b strings.Builder
	b.WriteString("the configuration has 1 fault")
	if len(e.Faults) != 1 {
		b.Reset()
		fmt.Fprintf(&b, "the configuration has %d faults", len(e.Faults))
	}
	for _, f := range e.Faults {
		b.WriteString("\n  " + f.String())
	}
	if e.Hint != "" {
		b.WriteString("\n" + e.Hint)
	}
	return b.String()
}

// faults collects what is wrong.
type faults []Fault

func (f *faults) add(name, format string, args ...any) {
	*f = append(*f, Fault{Name: name, Text: fmt.Sprintf(format, args...)})
}

// Locate adds to a fault what its setting was given, and where.
func Locate(f Fault, values []Value) Fault {
	for _, v := range values {
		if v.Name == f.Name {
			f.from = given(v)
		}
	}
	return f
}

// given returns the middle of a fault: ="value" (flag --x).
func given(v Value) string {
	switch {
	case v.Source == "":
		return " is not set"
	case v.Given == "": // a file that could not be read
		return from(v)
	case v.Secret && v.masked() == redacted:
		return "=" + redacted + from(v)
	case v.Secret:
		return "=" + strconv.Quote(v.masked()) + from(v)
	default:
		return "=" + strconv.Quote(v.Given) + from(v)
	}
}

func from(v Value) string {
	if strings.HasPrefix(v.Source, "env ") {
		return ""
	}
	return " (" + v.Source + ")"
}

// Load gives every setting its value. A setting with a fault keeps its default, so that later checks
// do not report the fault again.
func Load(settings []Setting, flags Flags, env Environ) (values []Value, found []Fault) {
	for _, s := range settings {
		v, err := lookup(s, flags, env)
		if err == nil {
			err = s.set(v.Given)
		}
		if err != nil {
			v.Bad = true
			found = append(found, Fault{Name: s.Name, Text: err.Error(), from: given(v)})
			if err := s.set(s.Default); err != nil {
				panic("default of " + s.Name + ": " + err.Error())
			}
		}
		values = append(values, v)
	}
	return values, found
}

// lookup finds the value of a setting and its source.
func lookup(s Setting, flags Flags, env Environ) (Value, error) {
	v := Value{Setting: s}
	text, inEnv := env[s.Name]
	inEnv = inEnv && text != "" // Compose passes a variable that is not set as an empty one
	path := ""
	if s.Secret {
		path = env[s.Name+"_FILE"]
	}
	flag, isFlag := flags[s.Flag]
	switch {
	case s.Flag != "" && isFlag:
		v.Given, v.Source = flag, "flag --"+s.Flag
		if flag == "" {
			v.Source = ""
		}
	case inEnv && path != "":
		v.Given, v.Source = text, "env "+s.Name
		return v, fmt.Errorf("%s_FILE is set too: keep only one of them", s.Name)
	case inEnv:
		v.Given, v.Source = text, "env "+s.Name
	case path != "":
		v.Source = "file " + path
		var err error
		if v.Given, err = readSecretFile(path); err != nil {
			return v, err
		}
	case s.Default != "":
		v.Given, v.Source = s.Default, "default"
	}
	return v, nil
}

const maxSecretFile = 64 << 10

func readSecretFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxSecretFile {
		return "", errors.New("the file is larger than 64 KiB")
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" {
		return "", errors.New("the file is empty")
	}
	return text, nil
}
