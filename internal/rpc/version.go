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

// generation is one version of the protocol as a binding of the server speaks it.
type generation struct {
	wire.Codec
	// pack makes of an item of a stream, as the codec wrote it, what the binding sends, so that
	// all streams share that. nil: it is sent as it is.
	pack func(item []byte) []byte
}

// formV1Packed is how gRPC writes what is of FormV1. It alone writes FormV03Parts.
const formV1Packed = wire.Forms

// A stream.Item has a slot for every encoding.
var _ [stream.Encodings - 2*(formV1Packed+1)]struct{}

// slot returns the place of an encoding in a stream.Item: each form has two, of events and of
// those that end a stream.
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

// packed returns an item as the binding sends it.
func (g *generation) packed(item []byte) []byte {
	if g.pack == nil {
		return item
	}
	return g.pack(item)
}

// versionName is that of a header, and of a parameter in the query.
const versionName = "A2A-Version"

// asked returns the generation that a request names, or nil if it names none. It is an error
// to name one that the server does not speak, or two.
func (s *Server) asked(header http.Header, query string) (*generation, error) {
	versions := header.Values(versionName)
	if query != "" {
		parameters, _ := url.ParseQuery(query) // of a malformed query what can be read counts
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
			return nil, a2a.Errorf(a2a.CodeVersionNotSupported, "this server speaks A2A %s, one of them in a request", s.versions())
		}
		found = g
	}
	return found, nil
}

// speaks returns the generation of a version, whose patch number says nothing.
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

// route returns the generation that a request is of, which is also that of an answer that
// refuses it: the one that has its method, and no other may be asked for.
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
	return asked, nil // the codec knows how to say that there is no such method
}

// agree refuses a request for something of generation g, a method or a path, that asks for
// another one. A request that asks for none is of the oldest (T-02 in docs/protocol.md).
func (s *Server) agree(asked, g *generation, what string) error {
	oldest := s.generations[0]
	switch {
	case asked == nil && g != oldest && s.cfg.LenientVersion:
		if s.cfg.Watch.Lenient != nil {
			s.cfg.Watch.Lenient("T-02")
		}
	case asked == nil && g != oldest:
		return a2a.Errorf(a2a.CodeVersionNotSupported, "a request without A2A-Version is one of %s, which has no %s: say A2A-Version: %s",
			oldest.Version(), what, g.Version())
	case asked != nil && asked != g:
		return a2a.Errorf(a2a.CodeVersionNotSupported, "%s is of A2A %s, but the request asks for %s", what, g.Version(), asked.Version())
	}
	return nil
}
