package importer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/answer"
)

// lines is a file with one JSON object per line: a Task, or an object with the members task, tenant, owner and
// pushNotificationConfigs.
type lines struct {
	file *os.File
	max  int
}

func openLines(name string) (*lines, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return &lines{f, MaxTask}, nil
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
			var r Record
			switch line = rawjson.Trim(line); {
			case tooLong:
				r = Record{Fault: fmt.Errorf("is longer than %d bytes", l.max)}
			case len(line) > 0:
				r = parseLine(line)
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

func parseLine(line []byte) (r Record) {
	if err := rawjson.Check(line, answer.MaxDepth+2); err != nil {
		return Record{Fault: fmt.Errorf("is not JSON: %w", err)}
	}
	task := rawjson.Get(line, "task")
	if task == nil {
		return Record{Doc: line}
	}
	r.Doc = task
	r.Tenant, _ = rawjson.String(rawjson.Get(line, "tenant"))
	r.Owner, _ = rawjson.String(rawjson.Get(line, "owner"))
	for v := range rawjson.Elements(rawjson.Get(line, "pushNotificationConfigs")) {
		id, _ := rawjson.String(rawjson.Get(v, "id"))
		r.hooks = append(r.hooks, Hook{ID: id, Data: v})
	}
	return r
}
