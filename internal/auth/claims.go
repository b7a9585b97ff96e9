package auth

import (
	"errors"
	"math"
	"strconv"

	"github.com/a2ad/a2ad/internal/rawjson"
)

// maxClaimDepth is how deep what issuers write may be nested.
const maxClaimDepth = 32

var errNoObject = errors.New("not a JSON object")

// members are those of a JSON object by their exact names. encoding/json would take AUD for aud, and the last of
// two that have the same name: what another reader, who has checked a token before us, may not do.
type members map[string][]byte

// readMembers reads an object in which no object, however deep, has a name twice.
func readMembers(doc []byte) (members, error) {
	if err := rawjson.Check(doc, maxClaimDepth); err != nil {
		return nil, err
	}
	if doc = rawjson.Trim(doc); rawjson.KindOf(doc) != rawjson.KindObject {
		return nil, errNoObject
	}
	m := make(members)
	for name, value := range rawjson.Members(doc) {
		m[string(name)] = value
	}
	return m, nil
}

// text returns a member that is a text, or "".
func (m members) text(name string) string {
	s, _ := rawjson.String(m[name])
	return s
}

// texts returns a member that is a text, or a list of nothing but texts.
func (m members) texts(name string) (all []string, ok bool) {
	value := m[name]
	if value == nil {
		return nil, true
	}
	if s, ok := rawjson.String(value); ok {
		return []string{s}, true
	}
	if rawjson.KindOf(value) != rawjson.KindArray {
		return nil, false
	}
	for item := range rawjson.Elements(value) {
		s, ok := rawjson.String(item)
		if !ok {
			return nil, false
		}
		all = append(all, s)
	}
	return all, true
}

// seconds returns a member that is a number, as times of tokens are. It is not there, or is not ok.
func (m members) seconds(name string) (s float64, there, ok bool) {
	value := m[name]
	if value == nil {
		return 0, false, true
	}
	if rawjson.KindOf(value) != rawjson.KindNumber {
		return 0, true, false
	}
	s, err := strconv.ParseFloat(string(value), 64)
	return s, true, err == nil && math.Abs(s) < 1<<53
}
