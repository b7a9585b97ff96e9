// Package tenantfile moves a tenant between deployments in a file: it takes the tenant out of one database and writes
// the file, and reads the file into another database.
//
// Every step can be repeated: an export or an import that was interrupted continues where it was. The package knows the
// format of the file and the order of the steps; package store/tenants has the rows.
package tenantfile

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tenants"
)

// Format is the version of the file. The first line has it.
const Format = 1

// header is the first line.
type header struct {
	A2AD   string `json:"a2ad"` // "tenant"
	Format int    `json:"format"`
	Schema int64  `json:"schema"` // of the database that the file was written from
	Tenant string `json:"tenant"`
	Move   string `json:"move"`
}

// line is a row, or the last line, which has an end.
type line struct {
	Page int64           `json:"page,omitempty"`
	Kind string          `json:"kind,omitempty"`
	Row  json.RawMessage `json:"row,omitempty"`
	End  *end            `json:"end,omitempty"`
}

// end is in the last line. A file without it is not whole.
type end struct {
	Pages  int64          `json:"pages"`
	Rows   map[string]int `json:"rows"`   // by table
	SHA256 string         `json:"sha256"` // of all lines before
}

// Manifest says what is in a file.
type Manifest struct {
	Tenant string         `json:"tenant"`
	Move   a2a.ID         `json:"-"`
	Schema int64          `json:"schema"`
	Pages  int64          `json:"-"` // the number of the last one
	Rows   map[string]int `json:"rows"`
	SHA256 string         `json:"sha256"`
}

// writer writes a file.
type writer struct {
	out *bufio.Writer
	sum hash.Hash
	to  *json.Encoder
	end end
}

func newWriter(out io.Writer, schema int64, m *tenants.Move) (*writer, error) {
	w := &writer{out: bufio.NewWriterSize(out, 1<<16), sum: sha256.New(), end: end{Rows: make(map[string]int)}}
	w.to = json.NewEncoder(io.MultiWriter(w.out, w.sum))
	w.to.SetEscapeHTML(false)
	return w, w.to.Encode(header{"tenant", Format, schema, m.Tenant, m.ID.String()})
}

func (w *writer) page(number int64, rows []tenants.Row) error {
	w.end.Pages = number
	for _, r := range rows {
		w.end.Rows[r.Kind]++
		// The row is written as it is: an encoder would compact it.
		head, err := json.Marshal(line{Page: number, Kind: r.Kind})
		if err != nil {
			return err
		}
		text := append(append(append(head[:len(head)-1], `,"row":`...), r.Body...), "}\n"...)
		w.sum.Write(text)
		if _, err := w.out.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// finish writes the last line.
func (w *writer) finish() (end, error) {
	w.end.SHA256 = hex.EncodeToString(w.sum.Sum(nil))
	if err := w.to.Encode(line{End: &w.end}); err != nil {
		return w.end, err
	}
	return w.end, w.out.Flush()
}

// The errors of a file.
var (
	ErrNoFile  = errors.New("this is no file of a2ad tenant export")
	ErrPartial = errors.New("the file is not whole: its last line is missing")
	ErrHash    = errors.New("the file has changed: its SHA-256 differs from the one in its last line")
)

// Check reads a whole file and compares it with its last line.
func Check(file io.Reader) (Manifest, error) {
	lines := bufio.NewReaderSize(file, 1<<16)
	m, first, err := readHeader(lines)
	if err != nil {
		return m, err
	}
	sum, rows := sha256.New(), make(map[string]int)
	sum.Write(first)
	for n := 2; ; n++ {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return m, ErrPartial
		}
		if err != nil {
			return m, fmt.Errorf("read the file: %w", err)
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return m, fmt.Errorf("line %d: %w", n, ErrHash)
		}
		if l.End == nil {
			sum.Write(text)
			rows[l.Kind]++
			continue
		}
		m.SHA256 = hex.EncodeToString(sum.Sum(nil))
		if m.SHA256 != l.End.SHA256 {
			return m, ErrHash
		}
		m.Pages, m.Rows = l.End.Pages, rows
		return m, sameCounts(rows, l.End.Rows)
	}
}

// sameCounts compares the number of rows of each table with what the last line says.
func sameCounts(have, want map[string]int) error {
	for kind, n := range want {
		if have[kind] != n {
			return fmt.Errorf("the file has %d rows of table %s, and its last line says %d", have[kind], kind, n)
		}
	}
	if len(have) != len(want) {
		return fmt.Errorf("the file has rows of %d tables, and its last line says %d", len(have), len(want))
	}
	return nil
}

func readHeader(lines *bufio.Reader) (m Manifest, text []byte, err error) {
	text, err = lines.ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return m, nil, fmt.Errorf("read the file: %w", err)
	}
	var h header
	if json.Unmarshal(text, &h) != nil || h.A2AD != "tenant" {
		return m, nil, ErrNoFile
	}
	if h.Format != Format {
		return m, nil, fmt.Errorf("the file has format %d, and this a2ad reads format %d", h.Format, Format)
	}
	m.Tenant, m.Schema = h.Tenant, h.Schema
	if m.Move, err = a2a.ParseID(h.Move); err != nil || h.Tenant == "" {
		return m, nil, ErrNoFile
	}
	return m, text, nil
}

// pages reads the rows of a file that Check has accepted, page by page.
func pages(file io.Reader, each func(number int64, rows []tenants.Row) error) error {
	lines := bufio.NewReaderSize(file, 1<<16)
	if _, _, err := readHeader(lines); err != nil {
		return err
	}
	var number int64
	var rows []tenants.Row
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("read the file: %w", err)
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("read the file: %w", err)
		}
		if (l.End != nil || l.Page != number) && len(rows) > 0 {
			if err := each(number, rows); err != nil {
				return err
			}
			rows = nil
		}
		if l.End != nil {
			return nil
		}
		number = l.Page
		rows = append(rows, tenants.Row{Kind: l.Kind, Body: string(bytes.TrimSpace(l.Row))})
	}
}
