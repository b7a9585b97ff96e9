package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/term"
)

// ring returns the keys of the server. Those of dev are beside its database.
func (d *Doctor) ring() (seal.Ring, error) {
	cfg := &d.Config
	if cfg.DatabaseURL.IsSet() && !d.Dev || !cfg.Keys.Empty() {
		return cfg.Keys, nil
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, config.DevKeysFile)); errors.Is(err, fs.ErrNotExist) {
		return cfg.Keys, nil
	}
	return config.DevKeys(cfg.DataDir)
}

// secrets checks that the keys decrypt what is stored.
func (d *Doctor) secrets(ctx context.Context, s *store.Store) error {
	ring, err := d.ring()
	if err != nil {
		return err
	}
	sealed, err := s.Access.SealedWith(ctx)
	if err != nil {
		return err
	}
	checkSecrets(ring, sealed, &d.Findings)
	return nil
}

func checkSecrets(ring seal.Ring, sealed []access.KeyUsage, f *Findings) {
	const putBack = "Put the key back at the end of A2AD_KEYS, then run \"a2ad keys rewrap\"."
	before, secrets := len(*f), int64(0)
	for _, s := range sealed {
		secrets += s.Secrets
		what := term.Count(int(s.Secrets), "secret")
		switch err := push.Opens(ring, s); {
		case ring.Empty():
			f.fault("keys", "Set A2AD_KEYS as on the servers.",
				"%s encrypted with key %s, and A2AD_KEYS is not set", what, s.KeyID)
		case errors.Is(err, seal.ErrUnknownKey):
			f.fault("keys", putBack, "%s encrypted with key %s, which A2AD_KEYS does not have", what, s.KeyID)
		case err != nil:
			f.fault("keys", "A2AD_KEYS has a different key with this id: restore the one that encrypted.",
				"%s encrypted with key %s cannot be decrypted: %s", what, s.KeyID, err)
		case s.KeyID != ring.IDs()[0]:
			f.note("keys", "Run \"a2ad keys rewrap\", then remove the old key.",
				"%s encrypted with the older key %s", what, s.KeyID)
		}
	}
	if ring.Empty() && len(sealed) == 0 {
		f.note("keys", "Set A2AD_KEYS=id:base64-of-32-bytes, the same on all servers.",
			"A2AD_KEYS is not set: webhooks with a token or credentials are refused")
		return
	}
	f.okUnless(before, "keys", "A2AD_KEYS decrypts all stored secrets (%d)", secrets)
}
