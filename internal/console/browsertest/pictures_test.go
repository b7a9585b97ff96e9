package browsertest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// TestScreenshots writes pictures of all pages of a server with the demo into SCREENSHOTS, to be looked at.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return // the pictures are for people: make screenshots
	}
	ctx := open(t)
	server := demo(t, ctx)
	for name, path := range demoPaths(t, ctx, server) {
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{360, 1440} {
				var picture []byte
				do(t, ctx, theme(scheme, width), chromedp.Navigate(server+path), chromedp.WaitReady("main"),
					chromedp.FullScreenshot(&picture, 100))
				write(t, filepath.Join(dir, fmt.Sprintf("%s-%s-%d.png", name, scheme, width)), picture)
			}
		}
	}
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// demoPaths returns the paths of all pages, and of more tasks of the demo, by name.
func demoPaths(t *testing.T, ctx context.Context, server string) map[string]string {
	t.Helper()
	all := paths(t, ctx, server)
	all["raw-both"] = all["raw"] + "?form=both"
	do(t, ctx, chromedp.Navigate(server+"/console/tasks?agent=orders&text=Plan&state=completed"),
		chromedp.WaitVisible(`[data-row]`))
	all["task-calls"] = eval[string](t, ctx, `document.querySelector('[data-row]').getAttribute('href')`)
	do(t, ctx, chromedp.Navigate(server+"/console/tasks?agent=refunds&state=input-required"),
		chromedp.WaitVisible(`[data-row]`))
	all["task-letter"] = eval[string](t, ctx, `document.querySelector('[data-row]').getAttribute('href')`)
	return all
}

// maxPicture is the size of a picture of the documents, in bytes.
const maxPicture = 150_000

// TestPictures makes the pictures of the documents. They must be small; DOCS_IMAGES is where they are kept.
func TestPictures(t *testing.T) {
	ctx := open(t)
	server := demo(t, ctx)
	all := demoPaths(t, ctx, server)
	for _, p := range []struct {
		name, path, scheme string
	}{
		{"overview", all["overview"], "light"}, {"overview-dark", all["overview"], "dark"},
		{"task", all["task-calls"], "light"}, {"inbox", all["inbox"], "light"},
		{"tasks", "/console/tasks?state=failed&since=24h", "light"},
	} {
		var shot []byte
		do(t, ctx, theme(p.scheme, 1440), chromedp.Navigate(server+p.path), chromedp.WaitReady("main"),
			// A screen with a mouse shows these only in the row under the pointer.
			chromedp.Evaluate(`(() => {
				const style = new CSSStyleSheet();
				style.replaceSync('.rows .copy { opacity: 0 !important }');
				document.adoptedStyleSheets = [style];
			})()`, nil),
			chromedp.ActionFunc(func(ctx context.Context) (err error) {
				shot, err = page.CaptureScreenshot().Do(ctx) // the window alone, not the whole page
				return err
			}))
		small := shrink(t, shot)
		if len(small) > maxPicture {
			t.Errorf("the picture %s has %d bytes, want at most %d", p.name, len(small), maxPicture)
		}
		if dir := os.Getenv("DOCS_IMAGES"); dir != "" {
			write(t, filepath.Join(dir, "console-"+p.name+".png"), small)
		}
	}
}

// shrink encodes a picture with at most 256 colors, and each other color as the nearest of them. It takes the most
// frequent ones that differ: pages of the console have few colors, apart from the edges of letters.
func shrink(t *testing.T, picture []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	size := from.Bounds()
	often := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			often[at(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(often), func(a, b color.RGBA) int {
		return cmp.Or(often[b]-often[a], cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	var palette color.Palette
	for _, c := range colors {
		if len(palette) < 256 && (len(palette) < 32 || !near(c, palette.Convert(c).(color.RGBA))) {
			palette = append(palette, c)
		}
	}
	index := make(map[color.RGBA]uint8, len(colors))
	for _, c := range colors {
		index[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(size, palette)
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			to.SetColorIndex(x, y, index[at(x, y)])
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// near reports whether people hardly tell two colors apart at the edge of a letter.
func near(a, b color.RGBA) bool {
	r, g, blue := int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B)
	return r*r+g*g+blue*blue < 300
}
