package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Retention is how long something is kept; 0 means for ever.
type Retention time.Duration

// UnmarshalText reads a duration or "never".
func (r *Retention) UnmarshalText(text []byte) error {
	if string(text) == "never" {
		*r = 0
		return nil
	}
	d, err := parseDuration(string(text))
	if err == nil && d <= 0 {
		err = errors.New(`must be longer than 0, or "never"`)
	}
	*r = Retention(d)
	return err
}

// MarshalText returns what UnmarshalText reads.
func (r Retention) MarshalText() ([]byte, error) {
	if r == 0 {
		return []byte("never"), nil
	}
	return []byte(formatDuration(time.Duration(r))), nil
}

// Durations is a list of delays.
type Durations []time.Duration

// UnmarshalText reads durations separated by commas.
func (ds *Durations) UnmarshalText(text []byte) error {
	var out Durations
	for item := range strings.SplitSeq(string(text), ",") {
		d, err := parseDuration(strings.TrimSpace(item))
		if err != nil {
			return fmt.Errorf("%q: %w", item, err)
		}
		if d < 0 {
			return fmt.Errorf("%q: must not be negative", item)
		}
		out = append(out, d)
	}
	*ds = out
	return nil
}

// MarshalText returns what UnmarshalText reads.
func (ds Durations) MarshalText() ([]byte, error) {
	var out []string
	for _, d := range ds {
		out = append(out, formatDuration(d))
	}
	return []byte(strings.Join(out, ",")), nil
}

// Breaker is the circuit breaker of a webhook's destination. It opens after Failures in a row, for
// First at first and then for longer, up to Longest.
type Breaker struct {
	Failures       int
	First, Longest time.Duration
}

// UnmarshalText reads "failures,first,longest".
func (b *Breaker) UnmarshalText(text []byte) error {
	bad := errors.New("write failures,first,longest, for example 5,30s,15m")
	parts := strings.Split(string(text), ",")
	if len(parts) != 3 {
		return bad
	}
	n, err1 := strconv.Atoi(strings.TrimSpace(parts[0]))
	first, err2 := parseDuration(strings.TrimSpace(parts[1]))
	longest, err3 := parseDuration(strings.TrimSpace(parts[2]))
	if err1 != nil || err2 != nil || err3 != nil {
		return bad
	}
	if n < 1 || first <= 0 || longest < first {
		return errors.New("failures must be at least 1, and the longest time not shorter than the first")
	}
	*b = Breaker{n, first, longest}
	return nil
}

// MarshalText returns what UnmarshalText reads.
func (b Breaker) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d,%s,%s", b.Failures, formatDuration(b.First), formatDuration(b.Longest)), nil
}

// Rate is how often something may be done: per second, and at once.
type Rate struct {
	PerSecond float64
	Burst     int
}

// UnmarshalText reads "per second,at once", or "off".
func (r *Rate) UnmarshalText(text []byte) error {
	*r = Rate{}
	if string(text) == "off" {
		return nil
	}
	each, burst, ok := strings.Cut(string(text), ",")
	second, err1 := strconv.ParseFloat(strings.TrimSpace(each), 64)
	once, err2 := strconv.Atoi(strings.TrimSpace(burst))
	valid := ok && err1 == nil && err2 == nil && second >= 0.001 && second <= 1e9 && once >= 1 && once <= 1e9
	if !valid { // also NaN
		return errors.New("write how many per second and how many at once, for example 100,500, or off")
	}
	*r = Rate{second, once}
	return nil
}

// MarshalText returns what UnmarshalText reads.
func (r Rate) MarshalText() ([]byte, error) {
	if r.PerSecond == 0 {
		return []byte("off"), nil
	}
	return []byte(strconv.FormatFloat(r.PerSecond, 'f', -1, 64) + "," + strconv.Itoa(r.Burst)), nil
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("not a duration: write a number and a unit, for example 500ms, 30s, 5m or 12h")
	}
	return d, nil
}

// formatDuration writes 5m instead of 5m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	if s == "0s" {
		return "0"
	}
	return s
}

// Bytes is a size.
type Bytes int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

// UnmarshalText reads a whole number of bytes, with or without a unit: 4MiB, 65536.
func (b *Bytes) UnmarshalText(text []byte) error {
	for _, u := range sizeUnits {
		num, ok := strings.CutSuffix(string(text), u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(num), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/u.bytes {
			break
		}
		*b = Bytes(n * u.bytes)
		return nil
	}
	return errors.New("not a size: write a number of bytes, with KiB, MiB or GiB if you like")
}

// MarshalText writes the largest unit that divides the size.
func (b Bytes) MarshalText() ([]byte, error) {
	for _, u := range sizeUnits[:3] {
		if b != 0 && int64(b)%u.bytes == 0 {
			return fmt.Appendf(nil, "%d%s", int64(b)/u.bytes, u.suffix), nil
		}
	}
	return strconv.AppendInt(nil, int64(b), 10), nil
}
