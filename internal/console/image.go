package console

import (
	"encoding/base64"
	"image"
	_ "image/gif"  // one of rasterTypes
	_ "image/jpeg" // one of rasterTypes
	_ "image/png"  // one of rasterTypes
	"net/http"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
)

// rasterTypes are the images that a page shows, by their content. None of them can contain a script. Any other file is
// only saved, whatever its name and media type claim.
var rasterTypes = map[string]string{"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif"}

// maxPixels keeps an image of a few bytes from taking the memory of a browser.
const maxPixels = 40_000_000

// rasterType returns the media type of an image that may be shown, or "".
func rasterType(p *a2a.Part) string {
	if p.Kind != a2a.PartFile {
		return ""
	}
	cfg, format, err := image.DecodeConfig(base64.NewDecoder(base64.StdEncoding, strings.NewReader(p.Text)))
	if err != nil || cfg.Width <= 0 || cfg.Height <= 0 || cfg.Width > maxPixels/cfg.Height {
		return ""
	}
	return rasterTypes[format]
}

// sendImage sends an image of an artifact to be shown. A browser that opens it on its own runs nothing of it.
func (c *Console) sendImage(q *request) error {
	artifact, err := c.artifactOf(q)
	if err != nil {
		return err
	}
	p := partOf(q, artifact)
	if p == nil {
		return errNotFound
	}
	kind := rasterType(p)
	body, err := base64.StdEncoding.DecodeString(p.Text)
	if kind == "" || err != nil {
		return errNotFound
	}
	return sendContent(q.w, http.Header{"Content-Type": {kind}, "Content-Disposition": {"inline"}}, body)
}
