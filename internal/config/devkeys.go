package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/a2ad/a2ad/internal/seal"
)

// DevKeysFile is where dev keeps its keys, in its data directory.
const DevKeysFile = "keys"

// DevKeys returns the keys of dev, and makes them the first time.
func DevKeys(dir string) (seal.Ring, error) {
	path := filepath.Join(dir, DevKeysFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(seal.Generate("dev") + "\n")
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return seal.Ring{}, fmt.Errorf("keys of dev: %w", err)
	}
	ring, err := seal.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return seal.Ring{}, fmt.Errorf("keys of dev in %s: %w", path, err)
	}
	return ring, nil
}
