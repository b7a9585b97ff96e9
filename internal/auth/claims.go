package auth

import (
	"errors"
	"math"
	"strconv"

	"github.com/a2ad/a2ad/internal/rawjson"
)

// maxClaimDepth limits the nesting of documents of issuers.
const maxClaimDepth = 32

var errNoObject = errors.New("not a JSON object")

// members are the members of a JSON object, by exact name. encoding/json would accept AUD for aud,
// and the last of two members with one name. A checker in front of us might read such a token in
// another way.
type members map[string][]byte

// readMembers reads an object. It refuses an object with duplicate names at any depth.
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

// text returns a member that is a string, or "".
func (m members) text(name string) string {
	s, _ := rawjson.String(m[name])
	return s
}

// texts returns a member that is a string or a list of strings.
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

// seconds returns a member that is a number, as token times are. Otherwise present or ok is false.
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
