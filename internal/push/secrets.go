package push

import (
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// secretOf names the column of a row that stores a secret. What is encrypted for one column cannot be decrypted as
// another, or as that of another row.
func secretOf(row a2a.ID, column string) seal.Cell {
	return seal.Cell{Table: "push_configs", Row: row.String(), Column: column}
}

const (
	columnToken       = "token"
	columnCredentials = "credentials"
	columnQuery       = "query"
)

// SealSecrets encrypts the secrets of a webhook for its row. nil stays nil.
func SealSecrets(ring seal.Ring, row a2a.ID, c *a2a.PushConfig) (token, credentials []byte, err error) {
	if c.Token != "" {
		if token, err = ring.Seal([]byte(c.Token), secretOf(row, columnToken)); err != nil {
			return nil, nil, err
		}
	}
	if c.Credentials != "" {
		if credentials, err = ring.Seal([]byte(c.Credentials), secretOf(row, columnCredentials)); err != nil {
			return nil, nil, err
		}
	}
	return token, credentials, nil
}

// SealURL encrypts the query of a webhook's URL for its row, and returns the URL with a mark instead of the query. A
// URL without a query stays unchanged, and so does every URL if the ring has no keys.
func SealURL(ring seal.Ring, row a2a.ID, raw string) (string, []byte, error) {
	base, query, ok := strings.Cut(raw, "?")
	if !ok || ring.Empty() {
		return raw, nil, nil
	}
	sealed, err := ring.Seal([]byte(query), secretOf(row, columnQuery))
	return base + "?" + a2a.RedactedQuery, sealed, err
}

// Reseal encrypts the secrets of a row again if the ring has a newer key, and a query that is not encrypted yet.
func Reseal(ring seal.Ring, row a2a.ID, s webhooks.Secrets) (_ webhooks.Secrets, changed bool, err error) {
	for _, secret := range []struct {
		sealed *[]byte
		column string
	}{{&s.Token, columnToken}, {&s.Credentials, columnCredentials}, {&s.Query, columnQuery}} {
		if len(*secret.sealed) == 0 || !ring.NeedsRewrap(*secret.sealed) {
			continue
		}
		at := secretOf(row, secret.column)
		plain, err := ring.Open(*secret.sealed, at)
		if err != nil {
			return s, false, err
		}
		if *secret.sealed, err = ring.Seal(plain, at); err != nil {
			return s, false, err
		}
		changed = true
	}
	if len(s.Query) == 0 {
		s.URL, s.Query, err = SealURL(ring, row, s.URL)
		changed = changed || len(s.Query) > 0
	}
	return s, changed, err
}

// Move encrypts the secrets of one row for another row. Without secrets it needs no keys.
func Move(ring seal.Ring, from, to a2a.ID, s webhooks.Secrets) (webhooks.Secrets, error) {
	for _, secret := range []struct {
		sealed *[]byte
		column string
	}{{&s.Token, columnToken}, {&s.Credentials, columnCredentials}, {&s.Query, columnQuery}} {
		if len(*secret.sealed) == 0 {
			continue
		}
		plain, err := ring.Open(*secret.sealed, secretOf(from, secret.column))
		if err != nil {
			return s, err
		}
		if *secret.sealed, err = ring.Seal(plain, secretOf(to, secret.column)); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Opens returns an error if the ring cannot decrypt a stored secret.
func Opens(ring seal.Ring, s access.KeyUsage) error {
	at := seal.Cell{Table: signingTable, Row: s.Name, Column: "key"}
	if s.Place != "signing" {
		at = seal.Cell{Table: "push_configs", Row: s.Name, Column: s.Place}
	}
	_, err := ring.Open(s.Sample, at)
	return err
}
