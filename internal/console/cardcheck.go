package console

import (
	"cmp"
	"fmt"
	"mime"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
)

// How grave a finding is. They are the words of the doctor.
const (
	levelOK      = "ok"
	levelWarning = "warning"
	levelFault   = "fault"
)

// cardFinding is what one check of a card has found.
type cardFinding struct{ Level, Check, Text string }

// checkCard checks a card as the inspectors of A2A do: whether clients find in it what they need.
func checkCard(card *a2a.Card) []cardFinding {
	list := []cardFinding{checkMembers(card)}
	list = append(list, checkInterfaces(card.Interfaces)...)
	list = append(list, checkModes("input modes", card.InputModes), checkModes("output modes", card.OutputModes))
	list = append(list, checkSkills(card.Skills), checkSecurity(card), capabilities(card))
	return list
}

// finding is a fault with a list of what is wrong, or no fault.
func finding(check, good string, wrong []string) cardFinding {
	if len(wrong) > 0 {
		return cardFinding{levelFault, check, strings.Join(wrong, "; ")}
	}
	return cardFinding{levelOK, check, good}
}

func checkMembers(card *a2a.Card) cardFinding {
	var missing []string
	for _, m := range []struct {
		name  string
		empty bool
	}{
		{"name", card.Name == ""}, {"description", card.Description == ""}, {"version", card.Version == ""},
		{"supportedInterfaces", len(card.Interfaces) == 0}, {"defaultInputModes", len(card.InputModes) == 0},
		{"defaultOutputModes", len(card.OutputModes) == 0}, {"skills", len(card.Skills) == 0},
	} {
		if m.empty {
			missing = append(missing, m.name+" is missing")
		}
	}
	return finding("required members", "the card has all of them", missing)
}

// bindings are the transports that the protocol defines.
var bindings = []string{"JSONRPC", "HTTP+JSON", "GRPC"}

func checkInterfaces(list []a2a.Interface) []cardFinding {
	var wrong, insecure, versions, transports, unknown []string
	add := func(list []string, v string) []string {
		if slices.Contains(list, v) {
			return list
		}
		return append(list, v)
	}
	for _, i := range list {
		versions, transports = add(versions, cmp.Or(i.Version, "none")), add(transports, i.Binding)
		if !slices.Contains(bindings, i.Binding) {
			unknown = add(unknown, fmt.Sprintf("%q is no transport of A2A", i.Binding))
		}
		u, err := url.Parse(i.URL)
		absolute := err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http")
		_, _, notPort := net.SplitHostPort(i.URL)
		switch {
		case i.Binding == "GRPC" && notPort == nil: // the official clients want host:port
		case !absolute:
			wrong = add(wrong, fmt.Sprintf("%q is no absolute URL of http or https", i.URL))
		case u.Scheme == "http" && !isLoopback(u.Hostname()):
			insecure = add(insecure, i.URL)
		}
	}
	slices.Sort(versions)
	addresses := finding("addresses", "all are absolute URLs", wrong)
	if len(wrong) == 0 && len(insecure) > 0 {
		addresses = cardFinding{levelWarning, "addresses", "not encrypted: " + strings.Join(insecure, ", ")}
	}
	var unversioned []string
	if slices.Contains(versions, "none") {
		unversioned = []string{"an interface has no version"}
	}
	return []cardFinding{
		addresses, finding("protocol versions", strings.Join(versions, ", "), unversioned),
		finding("transports", strings.Join(transports, ", "), unknown),
	}
}

func checkModes(check string, modes []string) cardFinding {
	var wrong []string
	for _, m := range modes {
		if kind, _, err := mime.ParseMediaType(m); err != nil || !strings.Contains(kind, "/") {
			wrong = append(wrong, fmt.Sprintf("%q is no media type", m))
		}
	}
	return finding(check, cmp.Or(strings.Join(modes, ", "), "none"), wrong)
}

func checkSkills(list []a2a.Skill) cardFinding {
	var wrong []string
	seen := make(map[string]bool, len(list))
	for i := range list {
		s := &list[i]
		name := cmp.Or(s.ID, s.Name, fmt.Sprintf("skill %d", i+1))
		for _, m := range []struct {
			member string
			empty  bool
		}{
			{"id", s.ID == ""}, {"name", s.Name == ""}, {"description", s.Description == ""},
			{"tags", len(s.Tags) == 0},
		} {
			if m.empty {
				wrong = append(wrong, name+" has no "+m.member)
			}
		}
		if s.ID != "" && seen[s.ID] {
			wrong = append(wrong, "several skills have the id "+s.ID)
		}
		seen[s.ID] = true
	}
	if len(list) == 0 {
		return cardFinding{levelWarning, "skills",
			"none: clients that choose agents by their skills do not find this one"}
	}
	return finding("skills", fmt.Sprintf("%d, each with an id, a name, a description and tags", len(list)), wrong)
}

func checkSecurity(card *a2a.Card) cardFinding {
	var names, wrong []string
	for i := range card.Security {
		names = append(names, card.Security[i].Name)
	}
	for i := range card.Skills {
		for _, r := range card.Skills[i].Security {
			for _, scheme := range r {
				if !slices.Contains(names, scheme.Name) {
					wrong = append(wrong, fmt.Sprintf("skill %s asks for %s, which the card does not describe",
						card.Skills[i].ID, scheme.Name))
				}
			}
		}
	}
	if len(names) == 0 && len(wrong) == 0 {
		return cardFinding{levelWarning, "sign-in", "none: whoever reaches the server may send messages"}
	}
	return finding("sign-in", "any of "+strings.Join(names, ", "), wrong)
}

// capabilities says what a client can use. None of it is a fault.
func capabilities(card *a2a.Card) cardFinding {
	list := []string{}
	for _, c := range []struct {
		name string
		has  bool
	}{{"streaming", card.Streaming}, {"push notifications", card.Push}, {"an extended card", card.ExtendedCard}} {
		if c.has {
			list = append(list, c.name)
		}
	}
	return cardFinding{levelOK, "capabilities", cmp.Or(strings.Join(list, ", "), "none")}
}
