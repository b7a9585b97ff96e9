package main

import (
	"encoding"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A setting is a struct field of the selected command with the tag type:"setting". Its
// value is that of the flag, else that of the A2AD_* variable, else the default. Tags:
//
//	name      of the flag; the variable is A2AD_ and the name in capitals
//	def, dev  the default, and that of `a2ad dev` where it differs
//	auto      in words, what an empty value means
//	min       the smallest value
//	oneof     the words allowed, with commas between them
//	secret    masked wherever it is shown; may come from a file named by A2AD_…_FILE
//	unused    what will read it, where nothing does so far
//	kong:"-"  no flag: command lines are visible to every user of a machine
type setting struct {
	Name    string // A2AD_LEASE_TTL
	Flag    string // lease-ttl, or "" if it cannot be a flag
	Default string
	Auto    string
	Min     string
	OneOf   []string
	Help    string
	Group   string
	Unused  string
	Secret  bool
	field   reflect.Value
}

// settingFromTag reads the tags of a field; get is the Get of a struct tag.
func settingFromTag(get func(string) string) setting {
	s := setting{
		Name: "A2AD_" + strings.ToUpper(strings.ReplaceAll(get("name"), "-", "_")), Flag: get("name"),
		Default: get("def"), Auto: get("auto"), Min: get("min"), Help: get("help"), Unused: get("unused"),
		Secret: get("secret") != "",
	}
	if words := get("oneof"); words != "" {
		s.OneOf = strings.Split(words, ",")
	}
	return s
}

// settingsOf returns the settings in the struct that target points to, in order.
func settingsOf(target any, dev bool) []setting {
	return appendSettings(nil, reflect.ValueOf(target).Elem(), "", dev)
}

func appendSettings(dst []setting, v reflect.Value, group string, dev bool) []setting {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			g := group
			if own := f.Tag.Get("group"); own != "" {
				g = own
			}
			dst = appendSettings(dst, v.Field(i), g, dev)
			continue
		}
		if f.Tag.Get("type") != "setting" {
			continue
		}
		s := settingFromTag(f.Tag.Get)
		s.Group = group
		s.field = v.Field(i)
		if f.Tag.Get("kong") == "-" {
			s.Flag = ""
		}
		if d, ok := f.Tag.Lookup("dev"); ok && dev {
			s.Default = d
		}
		dst = append(dst, s)
	}
	return dst
}

// value is a setting with what it was given.
type value struct {
	setting
	Given  string // text; "" if nothing was given and there is no default
	Source string // "flag --x", "env A2AD_X", "file /path", "default" or "" for unset
	Bad    bool   // has a fault; the field holds the default
}

// shown is the effective value for people, without secrets.
func (v *value) shown() string {
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

func (v *value) masked() string {
	if strings.HasSuffix(v.Name, "DATABASE_URL") {
		return maskDSN(v.Given)
	}
	return redacted
}

// fault is one thing that is wrong with the configuration.
type fault struct {
	Name string // of the setting
	Text string // what is wrong and how to mend it
	from string // value and source, filled in from the setting
}

func (f fault) String() string { return f.Name + f.from + ": " + f.Text }

// faultsError carries all faults at once.
type faultsError struct {
	faults []fault
	hint   string
}

func (e *faultsError) Error() string {
	var b strings.Builder
	b.WriteString("the configuration has 1 fault")
	if len(e.faults) != 1 {
		b.Reset()
		fmt.Fprintf(&b, "the configuration has %d faults", len(e.faults))
	}
	for _, f := range e.faults {
		b.WriteString("\n  " + f.String())
	}
	if e.hint != "" {
		b.WriteString("\n" + e.hint)
	}
	return b.String()
}

// configure fills the settings of a command and checks them, all of them before it
// reports what is wrong.
func configure(app *App, cmd any, flags flagValues, env environment) error {
	d, ok := cmd.(interface{ devDefaults() bool })
	values, faults := load(settingsOf(cmd, ok && d.devDefaults()), flags, env)
	if c, ok := cmd.(interface{ check() []fault }); ok {
		for _, f := range c.check() {
			faults = append(faults, locate(f, values))
		}
	}
	faults = append(faults, env.misspelt(app, cmd)...)
	app.settings, app.faults = values, faults
	if c, ok := cmd.(interface{ reportsFaults() }); ok {
		c.reportsFaults()
		return nil
	}
	if len(faults) == 0 {
		return nil
	}
	e := &faultsError{faults: faults}
	if h, ok := cmd.(interface{ faultHint() string }); ok {
		e.hint = h.faultHint()
	}
	return &exitError{exitUsage, e}
}

// misspelt says which A2AD_ variables mean nothing: as warnings, or as faults of a command that is strict.
func (env environment) misspelt(app *App, cmd any) (faults []fault) {
	c, ok := cmd.(interface{ strict() bool })
	strict := ok && c.strict()
	for _, name := range env.unknown() {
		if strict {
			faults = append(faults, fault{Name: name, Text: "unknown setting" + suggest(name)})
		} else {
			fmt.Fprintf(app.Stderr, "a2ad: warning: unknown setting %s is ignored%s\n", name, suggest(name))
		}
	}
	return faults
}

// locate adds to a fault of check what the setting was given, and where.
func locate(f fault, values []value) fault {
	for _, v := range values {
		if v.Name == f.Name {
			f.from = given(v)
		}
	}
	return f
}

// given is the middle of a fault: ="value" (flag --x).
func given(v value) string {
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

func from(v value) string {
	if strings.HasPrefix(v.Source, "env ") {
		return ""
	}
	return " (" + v.Source + ")"
}

// load gives every setting its value. A setting with a fault keeps its default, so that
// later checks do not report the same thing again.
func load(settings []setting, flags flagValues, env environment) (values []value, faults []fault) {
	for _, s := range settings {
		v, err := lookup(s, flags, env)
		if err == nil {
			err = s.set(v.Given)
		}
		if err != nil {
			v.Bad = true
			faults = append(faults, fault{Name: s.Name, Text: err.Error(), from: given(v)})
			if err := s.set(s.Default); err != nil {
				panic("default of " + s.Name + ": " + err.Error())
			}
		}
		values = append(values, v)
	}
	return values, faults
}

// lookup finds where a setting comes from.
func lookup(s setting, flags flagValues, env environment) (value, error) {
	v := value{setting: s}
	text, inEnv := env[s.Name]
	inEnv = inEnv && text != "" // compose files pass on variables that are not set as empty ones
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
		return v, fmt.Errorf("%s_FILE is set too: keep one of them", s.Name)
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

// set parses text into the field; "" is the zero value.
func (s *setting) set(text string) error {
	if text == "" {
		s.field.SetZero()
		return nil
	}
	if len(s.OneOf) > 0 && !slices.Contains(s.OneOf, text) {
		return fmt.Errorf("write %s", strings.Join(s.OneOf, " or "))
	}
	v := reflect.New(s.field.Type())
	if err := parse(v.Interface(), text); err != nil {
		return err
	}
	if s.Min != "" {
		low := reflect.New(s.field.Type())
		if err := parse(low.Interface(), s.Min); err != nil {
			panic("min of " + s.Name + ": " + err.Error())
		}
		if v.Elem().Int() < low.Elem().Int() {
			return fmt.Errorf("must be at least %s", s.Min)
		}
	}
	s.field.Set(v.Elem())
	return nil
}

// parse reads text into what target points to.
func parse(target any, text string) (err error) {
	switch t := target.(type) {
	case *string:
		*t = text
	case *Secret:
		*t = newSecret(text)
	case *bool:
		*t, err = parseBool(text)
	case *int:
		if *t, err = strconv.Atoi(text); err != nil {
			err = errors.New("not a whole number")
		}
	case *time.Duration:
		*t, err = parseDuration(text)
	case encoding.TextUnmarshaler:
		err = t.UnmarshalText([]byte(text))
	default:
		panic(fmt.Sprintf("setting of type %T", target))
	}
	return err
}

// format writes a field as parse reads it.
func format(field reflect.Value) string {
	switch t := field.Interface().(type) {
	case string:
		return t
	case bool:
		if t {
			return "on"
		}
		return "off"
	case int:
		return strconv.Itoa(t)
	case time.Duration:
		return formatDuration(t)
	case slog.Level:
		return strings.ToLower(t.String())
	case encoding.TextMarshaler:
		text, err := t.MarshalText()
		if err != nil {
			return err.Error()
		}
		return string(text)
	default:
		return fmt.Sprint(t)
	}
}

// placeholder is what the help shows as the value of a flag.
func placeholder(field any) string {
	switch field.(type) {
	case time.Duration, Retention:
		return "DURATION"
	case Bytes:
		return "SIZE"
	case int:
		return "N"
	case Listen, GRPCListen:
		return "HOST:PORT"
	case BaseURL, Secret, Issuer:
		return "URL"
	case Durations, Prefixes, Breaker, Rate:
		return "LIST"
	default:
		return "TEXT"
	}
}
