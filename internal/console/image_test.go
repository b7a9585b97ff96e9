package console_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/png"
	"net/http"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

func pngOf(t *testing.T, width, height int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// claimedSize returns the picture with another size in its header.
func claimedSize(picture []byte, side uint32) []byte {
	out := bytes.Clone(picture)
	binary.BigEndian.PutUint32(out[16:], side)
	binary.BigEndian.PutUint32(out[20:], side)
	binary.BigEndian.PutUint32(out[29:], crc32.ChecksumIEEE(out[12:29]))
	return out
}

func TestOnlyRasterImagesAreShown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lease := r.RunningTask()
	picture := pngOf(t, 4, 3)
	files := []struct {
		name, kind string
		body       []byte
		shown      bool
	}{
		{"a.png", "image/png", picture, true},
		{"html.png", "image/png", []byte("<script>alert(1)</script>"), false},
		{"a.svg", "image/svg+xml", []byte(`<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>`), false},
		{"svg.png", "image/png", []byte(`<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>`), false},
		{"bomb.png", "image/png", claimedSize(picture, 100_000), false},
		{"odd.html", "text/html", append(picture, "<script>alert(1)</script>"...), true}, // as the image that it is
	}
	var parts []a2a.Part
	for _, f := range files {
		parts = append(parts, a2a.Part{
			Kind: a2a.PartFile, Text: base64.StdEncoding.EncodeToString(f.body), Filename: f.name, MediaType: f.kind,
		})
	}
	r.Append(lease, &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "pictures", Parts: parts}})
	b := r.serve(open)
	path := "/console/tasks/" + lease.TaskID.String()
	page := b.page(path)
	for i, f := range files {
		at := path + "/images/0/" + string(rune('0'+i))
		if got := strings.Contains(page, `src="`+at+`"`); got != f.shown {
			t.Errorf("whether the page shows %s: %v, want %v", f.name, got, f.shown)
		}
		status, body := b.get(at)
		h := b.last.Header
		if !f.shown {
			if status != http.StatusNotFound || strings.Contains(body, "alert") {
				t.Errorf("%s answered %d", f.name, status)
			}
			continue
		}
		if body != string(f.body) || h.Get("Content-Type") != "image/png" ||
			h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Content-Security-Policy") != "default-src 'none'; sandbox" {
			t.Errorf("%s is sent with %v", f.name, h)
		}
	}
}
