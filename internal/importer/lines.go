package importer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/answer"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

// lines is a file with one JSON object per line: a Task, or an object with the members task, tenant, owner and
// pushNotificationConfigs. Of lines with the same task, the first one counts.
type lines struct {
	file *os.File
	max  int
	seen map[[16]byte]bool // hashes of tenants, owners and ids
}

func openLines(name string) (*lines, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return &lines{f, MaxTask, make(map[[16]byte]bool)}, nil
}

func (l *lines) Close() { l.file.Close() }

func (l *lines) Hooks(_ context.Context, r *Record) ([]Hook, error) { return r.hooks, nil }

func (l *lines) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		in := bufio.NewReaderSize(l.file, 64<<10)
		for n := 1; ctx.Err() == nil; n++ {
			line, tooLong, err := readLine(in, l.max)
			if err != nil && !errors.Is(err, io.EOF) {
				yield(Record{}, fmt.Errorf("line %d: %w", n, err))
				return
			}
			if n == 1 {
				line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")) // the byte order mark
			}
			var r Record
			switch line = rawjson.Trim(line); {
			case tooLong:
				r = Record{Fault: fmt.Errorf("is longer than %d bytes", l.max)}
			case len(line) > 0:
				r = parseLine(line)
				r.Older = l.older(&r)
			}
			if r.Fault != nil || r.Doc != nil {
				r.Name = fmt.Sprintf("line %d", n)
				if !yield(r, nil) {
					return
				}
			}
			if err != nil {
				return
			}
		}
		if err := context.Cause(ctx); err != nil {
			yield(Record{}, err)
		}
	}
}

// readLine reads a line without its end. It skips a line that is too long.
func readLine(in *bufio.Reader, limit int) (line []byte, tooLong bool, err error) {
	for {
		chunk, err := in.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(chunk) > limit; tooLong {
			line = nil
		} else {
			line = append(line, chunk...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), tooLong, err
		}
	}
}

// older reports whether an earlier line has the task of a record.
func (l *lines) older(r *Record) bool {
	id, ok := rawjson.String(rawjson.Get(r.Doc, "id"))
	if !ok {
		return false
	}
	sum := sha256.Sum256([]byte(r.Tenant + "\x00" + r.Owner + "\x00" + id))
	key := [16]byte(sum[:16])
	seen := l.seen[key]
	l.seen[key] = true
	return seen
}

func parseLine(line []byte) (r Record) {
	if err := rawjson.Check(line, answer.MaxDepth+2); err != nil {
		return Record{Fault: fmt.Errorf("cannot be read: %w", err)}
	}
	if rawjson.Get(line, "task") == nil {
		return Record{Doc: line}
	}
	for key, v := range rawjson.Members(line) {
		ok := true
		switch string(key) {
		case "task":
			r.Doc = v
		case "tenant":
			r.Tenant, ok = text(v)
		case "owner":
			r.Owner, ok = text(v)
		case "pushNotificationConfigs":
			ok = decode.Absent(v) || rawjson.KindOf(v) == rawjson.KindArray
			for v := range rawjson.Elements(v) {
				id, _ := rawjson.String(rawjson.Get(v, "id"))
				r.hooks = append(r.hooks, Hook{ID: id, Data: v})
			}
		default:
			r.left = append(r.left, string(key))
		}
		if !ok {
			return Record{Fault: fmt.Errorf("%s has a value of another type", key)}
		}
	}
	return r
}

// text reads a text that may be absent.
func text(v []byte) (string, bool) {
	if decode.Absent(v) {
		return "", true
	}
	return rawjson.String(v)
}
