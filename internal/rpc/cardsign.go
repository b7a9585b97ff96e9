package rpc

import (
	"fmt"
	"strconv"

	"github.com/gowebpki/jcs"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// CardSigner signs cards of version 1.0. Its keys may change at any time.
type CardSigner interface {
	// CardKey returns the id of the current signing key.
	CardKey() string
	// SignCard signs the canonical bytes of a card, and says which key it used.
	SignCard(canonical []byte) (key, protected, signature string, err error)
}

// signable returns a card that can be signed. It leaves out members that are false. It gives
// requirements without scopes the scopes that clients need, because implementations read an empty
// list in two ways.
func signable(c a2a.Card) a2a.Card {
	c.Sparse = true
	schemes := make([]a2a.SecurityScheme, len(c.Security))
	for i, s := range c.Security {
		if schemes[i] = s; len(s.Scopes) == 0 {
			schemes[i].Scopes = []string{"tasks:read", "tasks:write"}
		}
	}
	c.Security = schemes
	return c
}

// canonical returns the bytes of a card to sign. It refuses cards that implementations serialize
// differently: they disagree about empty, false and zero members, about numbers that are not
// integers, and about the order of names that are not ASCII.
func canonical(body []byte) ([]byte, error) {
	if err := agreed(body, "card"); err != nil {
		return nil, err
	}
	out, err := jcs.Transform(body)
	if err != nil {
		return nil, fmt.Errorf("canonical form: %w", err)
	}
	return out, nil
}

func agreed(v []byte, at string) error {
	bad := ""
	switch rawjson.KindOf(v) {
	case rawjson.KindObject:
		bad = "an empty object"
		for key, member := range rawjson.Members(v) {
			bad = ""
			for i := range len(key) {
				if key[i] >= 0x80 {
					return disagreed(at, "the name "+strconv.Quote(string(key)))
				}
			}
			if err := agreed(member, at+"."+string(key)); err != nil {
				return err
			}
		}
	case rawjson.KindArray:
		bad = "an empty list"
		n := 0
		for item := range rawjson.Elements(v) {
			bad = ""
			if err := agreed(item, at+"["+strconv.Itoa(n)+"]"); err != nil {
				return err
			}
			n++
		}
	case rawjson.KindString:
		if len(v) == len(`""`) {
			bad = "an empty text"
		}
	case rawjson.KindNumber:
		if n, err := strconv.ParseInt(string(v), 10, 64); err != nil || n == 0 || n > 1<<53 || n < -1<<53 {
			bad = "the number " + string(v)
		}
	case rawjson.KindBool:
		if string(v) == "false" {
			bad = "false"
		}
	default:
		bad = "null"
	}
	if bad != "" {
		return disagreed(at, bad)
	}
	return nil
}

func disagreed(at, what string) error {
	return fmt.Errorf("it cannot be signed: %s is %s, which implementations serialize differently; "+
		"change it, or turn A2AD_CARD_SIGNING off", at, what)
}

// signed is a card with its signature.
type signed struct {
	key string
	shown
}

// current returns a card as it is served. It signs the card again if the key has changed.
func (s *Server) current(c *card) (*shown, error) {
	if c.canonical == nil {
		return &c.shown, nil
	}
	have := c.signed.Load()
	if have != nil && have.key == s.cfg.CardSigner.CardKey() {
		return &have.shown, nil
	}
	key, protected, signature, err := s.cfg.CardSigner.SignCard(c.canonical)
	if err != nil {
		return nil, err
	}
	body := append(c.body[:len(c.body)-1:len(c.body)-1], `,"signatures":[{"protected":"`...)
	body = append(append(append(append(body, protected...), `","signature":"`...), signature...), `"}]}`...)
	next := &signed{key: key, shown: newShown(body)}
	if have == nil {
		next.modified = c.modified
	} else {
		next.follow(have.modified)
	}
	c.signed.Store(next)
	return &next.shown, nil
}
