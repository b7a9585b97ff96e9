package push

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// cardSigner signs agent cards: a detached JWS over their canonical bytes.
type cardSigner struct {
	id     string
	signer jose.Signer
}

func newCardSigner(issuer string, k Key) (*cardSigner, error) {
	key := jose.JSONWebKey{Key: k.private(), KeyID: k.ID}
	options := (&jose.SignerOptions{}).WithType("JOSE").WithHeader("jku", issuer+"/.well-known/jwks.json")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: key}, options)
	if err != nil {
		return nil, fmt.Errorf("make signer of cards: %w", err)
	}
	return &cardSigner{k.ID, signer}, nil
}

// Format keeps the key out of printed text.
func (c *cardSigner) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

var errNoKeys = errors.New("no key to sign agent cards with")

// CardKey returns the id of the key that signs agent cards now, or "".
func (k *Keys) CardKey() string {
	if c := k.current.Load().cards; c != nil {
		return c.id
	}
	return ""
}

// SignCard signs the canonical bytes of an agent card, and returns the id of the key. The same bytes and key give the
// same signature on every replica.
func (k *Keys) SignCard(canonical []byte) (key, protected, signature string, err error) {
	c := k.current.Load().cards
	if c == nil {
		return "", "", "", errNoKeys
	}
	jws, err := c.signer.Sign(canonical)
	if err != nil {
		return "", "", "", fmt.Errorf("sign card: %w", err)
	}
	text, err := jws.DetachedCompactSerialize()
	if err != nil {
		return "", "", "", fmt.Errorf("sign card: %w", err)
	}
	parts := strings.Split(text, ".")
	return c.id, parts[0], parts[2], nil
}
