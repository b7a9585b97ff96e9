package a2a_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

const (
	someTrace  = "0af7651916cd43dd8448eb211c80319c"
	someParent = "b7ad6b7169203331"
)

func TestTraceparentIsValidated(t *testing.T) {
	t.Parallel()
	plain := "00-" + someTrace + "-" + someParent + "-01"
	for header, want := range map[string]string{
		plain: plain,
		"00-" + someTrace + "-" + someParent + "-00":           "00-" + someTrace + "-" + someParent + "-00",
		"00-" + someTrace + "-" + someParent + "-03":           "00-" + someTrace + "-" + someParent + "-03",
		"00-" + someTrace + "-" + someParent + "-fd":           plain, // flags that are not defined yet
		"cc-" + someTrace + "-" + someParent + "-01":           plain, // a later version
		"cc-" + someTrace + "-" + someParent + "-01-what-else": plain,

		"":            "",
		plain + "-":   "",
		plain + "-00": "",
		plain + "0":   "",
		"cc-" + someTrace + "-" + someParent + "-01.x":                                          "",
		"ff-" + someTrace + "-" + someParent + "-01":                                            "",
		"0-0" + someTrace + "-" + someParent + "-01":                                            "",
		"00-" + strings.Repeat("0", 32) + "-" + someParent + "-01":                              "",
		"00-" + someTrace + "-" + strings.Repeat("0", 16) + "-01":                               "",
		"00-" + strings.ToUpper(someTrace) + "-" + someParent + "-01":                           "",
		"00-" + someTrace[:31] + "g-" + someParent + "-01":                                      "",
		"00-" + someTrace[:31] + "--" + someParent + "-01":                                      "",
		"00_" + someTrace + "_" + someParent + "_01":                                            "",
		"00-" + someTrace + "-" + someParent + "-0":                                             "",
		"00-" + someTrace + "-" + someParent + "--1":                                            "",
		"00-" + someTrace + "-" + someParent + "-01,00-" + someTrace + "-" + someParent + "-01": "",
		strings.Repeat("-", 55):                                                                 "",
	} {
		if got := a2a.ParseTraceparent(header); string(got) != want {
			t.Errorf("%q gives %q, want %q", header, got, want)
		}
	}
}

func TestNextTraceparentKeepsTraceAndFlags(t *testing.T) {
	t.Parallel()
	first := a2a.ParseTraceparent("00-" + someTrace + "-" + someParent + "-01")
	form := regexp.MustCompile("^00-" + someTrace + "-[0-9a-f]{16}-01$")
	a, b := first.Next(), first.Next()
	if !form.MatchString(string(a)) || a == first || a == b || a2a.ParseTraceparent(string(a)) != a {
		t.Errorf("after %s got %s and %s", first, a, b)
	}
	if none := a2a.Traceparent("").Next(); none != "" {
		t.Errorf("after no traceparent got %s", none)
	}
}
