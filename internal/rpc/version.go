package rpc

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/wire"
)

// generation is one version of the protocol as a binding speaks it.
type generation struct {
	wire.Codec
	// pack turns an item of a stream from the codec's form into the binding's, so that streams can
	// share the result. nil: the item is sent unchanged.
	pack func(item []byte) []byte
}

// formV1Packed is the form in which gRPC writes items of FormV1. Only gRPC writes FormV03Parts.
const formV1Packed = wire.Forms

// A stream.Item must have a slot for every encoding.
var _ [stream.Encodings - 2*(formV1Packed+1)]struct{}

// slot returns the index of an encoding in a stream.Item. Each form has two: one for events, and
// one for events that end the stream.
func (g *generation) slot(last bool) int {
	form := int(g.Form())
	if g.pack != nil && g.Form() == wire.FormV1 {
		form = formV1Packed
	}
	if last {
		return 2*form + 1
	}
	return 2 * form
}

// packed returns an item in the form of the binding.
func (g *generation) packed(item []byte) []byte {
	if g.pack == nil {
		return item
	}
	return g.pack(item)
}

// versionName is the name of the header and of the query parameter.
const versionName = "A2A-Version"

// asked returns the generation that a request names, or nil if it names none. Naming an unknown
// version, or two, is an error.
func (s *Server) asked(header http.Header, query string) (*generation, error) {
	versions := header.Values(versionName)
	if query != "" {
		parameters, _ := url.ParseQuery(query) // the readable part of a malformed query counts
		versions = append(versions[:len(versions):len(versions)], parameters[versionName]...)
	}
	var found *generation
	for _, v := range versions {
		v = strings.TrimSpace(v)
		if v == "" {
			continue
		}
		g := s.speaks(v)
		if g == nil || found != nil && found != g {
			return nil, a2a.Errorf(a2a.CodeVersionNotSupported,
				"this server speaks A2A %s; a request must name one of them", s.versions())
		}
		found = g
	}
	return found, nil
}

// speaks returns the generation of a version, whatever its patch number.
func (s *Server) speaks(version string) *generation {
	for _, g := range s.generations {
		patch, ok := strings.CutPrefix(version, g.Version())
		if ok && (patch == "" || patch[0] == '.' && isNumber(patch[1:])) {
			return g
		}
	}
	return nil
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

func (s *Server) versions() string {
	var names []string
	for _, g := range s.generations {
		names = append(names, g.Version())
	}
	return strings.Join(names, " and ")
}

// route returns the generation that has the method of a request. The answer uses that generation
// too, even if it refuses the request because it asks for another one.
func (s *Server) route(asked *generation, method string) (*generation, error) {
	for _, g := range s.generations {
		if !g.Has(method) {
			continue
		}
		if err := s.agree(asked, g, method); err != nil {
			if asked != nil {
				g = asked
			}
			return g, err
		}
		return g, nil
	}
	if asked == nil {
		return s.generations[0], nil
	}
	return asked, nil // the codec reports the unknown method
}

// agree refuses a request for a method or a path of generation g that asks for another version. A
// request that names no version uses the oldest (T-02 in docs/reference/protocol.md).
func (s *Server) agree(asked, g *generation, what string) error {
	oldest := s.generations[0]
	switch {
	case asked == nil && g != oldest && s.cfg.LenientVersion:
		if s.cfg.Watch.Lenient != nil {
			s.cfg.Watch.Lenient("T-02")
		}
	case asked == nil && g != oldest:
		return a2a.Errorf(a2a.CodeVersionNotSupported,
			"a request without A2A-Version uses version %s, which has no %s: send A2A-Version: %s",
			oldest.Version(), what, g.Version())
	case asked != nil && asked != g:
		return a2a.Errorf(a2a.CodeVersionNotSupported, "%s belongs to A2A %s, but the request asks for %s", what,
			g.Version(), asked.Version())
	}
	return nil
}
