package cron_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/cron"
)

const shown = "2006-01-02 15:04 -07"

// ticks returns the first n ticks after a time of the zone.
func ticks(t *testing.T, text, zone, after string, n int) (list []string) {
	t.Helper()
	z, err := cron.Zone(zone)
	if err != nil {
		t.Fatal(err)
	}
	s, err := cron.Parse(text, z)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	at, err := time.Parse(shown, after)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		at = s.Next(at)
		list = append(list, at.In(z).Format("02 15:04 -07"))
	}
	return list
}

func TestTicksWhenClocksChange(t *testing.T) {
	t.Parallel()
	const (
		berlin, newYork = "Europe/Berlin", "America/New_York"
		spring, autumn  = "2026-03-28 12:00 +01", "2026-10-24 12:00 +02" // the days before, in Berlin
		night           = "2026-03-29 00:30 +01"
		late            = "2026-10-25 00:30 +02"
	)
	for _, tc := range []struct {
		name, text, zone, after string
		want                    []string
	}{
		{"fixed, skipped", "30 2 * * *", berlin, spring, []string{"29 03:00 +02", "30 02:30 +02"}},
		{"fixed, many skipped", "*/20 2 * * *", berlin, spring, []string{"29 03:00 +02", "30 02:00 +02"}},
		{"skipped and the hour after", "0 2,3 * * *", berlin, spring, []string{"29 03:00 +02", "30 02:00 +02"}},
		{"fixed, repeated", "30 2 * * *", berlin, autumn, []string{"25 02:30 +02", "26 02:30 +01"}},
		{"fixed, many repeated", "15,45 2 * * *", berlin, autumn,
			[]string{"25 02:15 +02", "25 02:45 +02", "26 02:15 +01"}},
		{"after the repetition began", "30 2 * * *", berlin, "2026-10-25 02:10 +01", []string{"26 02:30 +01"}},
		{"daily at midnight", "@daily", berlin, autumn, []string{"25 00:00 +02", "26 00:00 +01"}},
		{"hourly, skipped", "@hourly", berlin, night, []string{"29 01:00 +01", "29 03:00 +02", "29 04:00 +02"}},
		{"hourly, repeated", "0 * * * *", berlin, late,
			[]string{"25 01:00 +02", "25 02:00 +02", "25 02:00 +01", "25 03:00 +01"}},
		{"half-hourly, skipped", "*/30 * * * *", berlin, night,
			[]string{"29 01:00 +01", "29 01:30 +01", "29 03:00 +02", "29 03:30 +02"}},
		{"half-hourly, repeated", "*/30 * * * *", berlin, "2026-10-25 02:10 +02",
			[]string{"25 02:30 +02", "25 02:00 +01", "25 02:30 +01", "25 03:00 +01"}},
		{"every two hours, skipped", "0 */2 * * *", berlin, night, []string{"29 04:00 +02", "29 06:00 +02"}},
		{"every two hours, repeated", "0 */2 * * *", berlin, late,
			[]string{"25 02:00 +02", "25 02:00 +01", "25 04:00 +01"}},
		{"west, skipped", "30 2 * * *", newYork, "2026-03-07 12:00 -05", []string{"08 03:00 -04", "09 02:30 -04"}},
		{"west, repeated", "30 1 * * *", newYork, "2026-10-31 12:00 -04", []string{"01 01:30 -04", "02 01:30 -05"}},
		{"a skipped day", "0 9 * * *", "Pacific/Apia", "2011-12-29 12:00 -10",
			[]string{"31 00:00 +14", "31 09:00 +14"}},
		{"half an hour of summer", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03 12:00 +10",
			[]string{"04 02:30 +11", "05 02:15 +11"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, ticks(t, tc.text, tc.zone, tc.after, len(tc.want))); diff != "" {
				t.Errorf("%s -want +got:\n%s", tc.text, diff)
			}
		})
	}
}

func TestTicksOfDays(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text string
		want []string
	}{
		{"@monthly", []string{"01 00:00 +00", "01 00:00 +00"}},
		{"@weekly", []string{"29 00:00 +00", "06 00:00 +00"}},
		{"0 9 * * 7", []string{"29 09:00 +00", "06 09:00 +00"}},
		{"0 9 1 * mon", []string{"30 09:00 +00", "01 09:00 +00", "07 09:00 +00"}}, // or, as in cron
		{"0 0 29 2 *", []string{"29 00:00 +00", "29 00:00 +00"}},
	} {
		after := "2026-11-24 00:00 +00"
		if diff := cmp.Diff(tc.want, ticks(t, tc.text, "UTC", after, len(tc.want))); diff != "" {
			t.Errorf("%s -want +got:\n%s", tc.text, diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                      "write five fields",
		"* * *":                 "write five fields",
		"0 0 0 * * *":           "write five fields",
		"@every 1s":             "write five fields",
		"@reboot":               "write five fields",
		"TZ=UTC @daily":         "write five fields",
		"CRON_TZ=UTC 0 0 * * *": "write five fields",
		"61 * * * *":            "above maximum",
		"x * * * *":             "x",
		"0 0 31 2 *":            "never tick",
	} {
		if s, err := cron.Parse(text, time.UTC); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, %v, want an error with %q", text, s, err, want)
		}
	}
	for _, zone := range []string{"", "Local", "Europe/Atlantis", "../UTC"} {
		if z, err := cron.Zone(zone); err == nil {
			t.Errorf("Zone(%q) = %v, want an error", zone, z)
		}
	}
}

// Ticks only go forward, and a tick is the next one after each time since the tick before it.
func TestTicksAreInOrder(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"} {
		z, err := cron.Zone(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"*/7 * * * *", "5,55 1-3 * * *", "0 2 * * *", "30 */3 * * *"} {
			s, err := cron.Parse(text, z)
			if err != nil {
				t.Fatal(err)
			}
			end := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
			for at := end.AddDate(-1, 0, 0); at.Before(end); {
				next := s.Next(at)
				if !next.After(at) || s.Next(next.Add(-time.Second)) != next {
					t.Fatalf("%s in %s: %v after %v, and %v after a second before it",
						text, zone, next, at, s.Next(next.Add(-time.Second)))
				}
				at = next
			}
		}
	}
}
