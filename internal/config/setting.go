package config

import (
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is a struct field with the tag type:"setting". Its value comes from the flag, or else from
// the A2AD_* variable, or else it is the default. The tags are:
//
//	name      name of the flag; the variable is A2AD_ and the name in capitals
//	def, dev  the default, and the default of `a2ad dev` if it differs
//	min       the smallest value
//	oneof     the words that are allowed, separated by commas
//	secret    mask the value; it may come from a file named by A2AD_…_FILE
//	kong:"-"  no flag, because every user of a machine can see command lines
//
// What people read about it is in descriptions.
type Setting struct {
	Name    string // A2AD_LEASE_TTL
	Flag    string // lease-ttl, or "" if it cannot be a flag
	Default string
	Auto    string // in words, what an empty value means
	Min     string
	OneOf   []string
	Help    string
	Group   string
	Secret  bool
	field   reflect.Value
}

// FromTag reads the tags of a field; get is the Get of a struct tag.
func FromTag(get func(string) string) Setting {
	flag := get("name")
	about := descriptions[flag]
	s := Setting{
		Name: "A2AD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_")), Flag: flag,
		Default: get("def"), Min: get("min"), Secret: get("secret") != "",
		Help: about.help, Auto: about.auto,
	}
	if words := get("oneof"); words != "" {
		s.OneOf = strings.Split(words, ",")
	}
	return s
}

// SettingsOf returns the settings in the struct that target points to, in order.
func SettingsOf(target any, dev bool) []Setting {
	return appendSettings(nil, reflect.ValueOf(target).Elem(), "", dev)
}

func appendSettings(dst []Setting, v reflect.Value, group string, dev bool) []Setting {
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
		s := FromTag(f.Tag.Get)
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

// set parses text into the field; "" is the zero value.
func (s *Setting) set(text string) error {
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
		*t = NewSecret(text)
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

// Placeholder is what the help shows as the value of the flag of a setting.
func Placeholder(flag string, field any) string {
	if value := descriptions[flag].value; value != "" {
		return value
	}
	switch field.(type) {
	case time.Duration, Retention:
		return "DURATION"
	case Bytes:
		return "SIZE"
	case int:
		return "N"
	case Listen, GRPCListen:
		return "HOST:PORT"
	case BaseURL, Secret, Issuer, TraceURL:
		return "URL"
	case Durations, Prefixes, Breaker, Rate:
		return "LIST"
	default:
		return "TEXT"
	}
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "on", "true", "yes", "1":
		return true, nil
	case "off", "false", "no", "0":
		return false, nil
	}
	return false, errors.New("write on or off")
}
