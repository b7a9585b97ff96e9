package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed assets
var assetFiles embed.FS

// asset is a file that a page uses. Its name has a hash of its content, so browsers may keep it for as long as they
// like.
type asset struct {
	kind string
	body []byte
}

// assets are all files that pages use.
type assets struct {
	files map[string]asset  // by their names in URLs
	urls  map[string]string // by their names in assets/
}

func loadAssets() (assets, error) {
	a := assets{files: make(map[string]asset), urls: make(map[string]string)}
	list, err := fs.ReadDir(assetFiles, "assets")
	if err != nil {
		return a, fmt.Errorf("read assets: %w", err)
	}
	for _, f := range list {
		body, err := assetFiles.ReadFile("assets/" + f.Name())
		if err != nil {
			return a, fmt.Errorf("read assets: %w", err)
		}
		sum, ext := sha256.Sum256(body), path.Ext(f.Name())
		name := strings.TrimSuffix(f.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		a.files[name] = asset{mime.TypeByExtension(ext), body}
		a.urls[f.Name()] = Prefix + "/assets/" + name
	}
	return a, nil
}

func (c *Console) serveAsset(w http.ResponseWriter, r *http.Request) {
	f, ok := c.assets.files[r.PathValue("file")]
	if !ok {
		c.fail(w, r, errNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Content-Length", strconv.Itoa(len(f.body)))
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Write(f.body) //nolint:errcheck // the client disconnected
}
