package agents

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/a2ad/a2ad/internal/rawjson"
)

// node is one value of a YAML or JSON file, with its line.
type node struct {
	kind    kind
	line    int
	text    string // a scalar as written; of a string without its quotes
	list    []node
	members []member
}

type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindList
	kindMap
)

func (k kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "text", "a list", "a mapping"}[k]
}

type member struct {
	key   string
	line  int
	value node
}

// maxDepth limits nesting. The form needs four levels, and schemas go deeper.
const maxDepth = 64

// lineError is an error in a document, with its line.
type lineError struct {
	line int
	text string
}

func (e *lineError) Error() string { return e.text }

func parseJSON(data []byte) (node, error) {
	if err := rawjson.Check(data, maxDepth); err != nil {
		line, text := 0, err.Error()
		var e *rawjson.Error
		if errors.As(err, &e) {
			line, text = lineAt(data, e.Offset), e.Text
		}
		return node{}, &lineError{line, "not valid JSON: " + text}
	}
	return fromJSON(data, rawjson.Trim(data)), nil
}

func lineAt(data []byte, offset int) int { return 1 + bytes.Count(data[:offset], []byte("\n")) }

// fromJSON requires v to be a part of doc: its remaining capacity says where v starts.
func fromJSON(doc, v []byte) node {
	n := node{line: lineAt(doc, cap(doc)-cap(v))}
	switch rawjson.KindOf(v) {
	case rawjson.KindBool:
		n.kind, n.text = kindBool, string(v)
	case rawjson.KindNumber:
		n.kind, n.text = kindNumber, string(v)
	case rawjson.KindString:
		n.kind = kindString
		n.text, _ = rawjson.String(v)
	case rawjson.KindArray:
		n.kind = kindList
		for e := range rawjson.Elements(v) {
			n.list = append(n.list, fromJSON(doc, e))
		}
	case rawjson.KindObject:
		n.kind = kindMap
		for k, e := range rawjson.Members(v) {
			value := fromJSON(doc, e)
			n.members = append(n.members, member{key: string(k), line: value.line, value: value})
		}
	}
	return n
}

func parseYAML(data []byte) (node, error) {
	if !utf8.Valid(data) {
		return node{}, &lineError{0, "not UTF-8 text"}
	}
	if err := tooMuch(data); err != nil {
		return node{}, err
	}
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		line, text := 0, err.Error()
		var e yaml.Error
		if errors.As(err, &e) {
			line, text = lineOf(e.GetToken()), e.GetMessage()
		}
		return node{}, &lineError{line, "not good YAML: " + text}
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.DirectiveType {
			continue
		}
		if body != nil {
			return node{}, &lineError{lineOf(doc.GetToken()), "a second document; write one agent per file"}
		}
		body = doc.Body
	}
	if body == nil {
		return node{}, &lineError{0, "the file is empty; it needs at least name, description and executor"}
	}
	return fromYAML(body, 0)
}

// Limits of a YAML file, far above any agent file. The cost of the parser grows with their square.
const (
	maxLines  = 4000
	maxMarks  = 16 << 10 // characters that may have a meaning
	maxColons = 6000
	maxRare   = 2000 // characters of anchors, aliases, tags and directives, which agent files do not use
)

// tooMuch finds text that the parser should not get: nested more deeply than any agent file, or
// with too many special characters. It ignores quotes, because no text has that many unclosed
// brackets.
func tooMuch(data []byte) error {
	if line := tooDeep(data); line > 0 {
		return &lineError{line, "nested too deeply"}
	}
	lines, colons := bytes.Count(data, []byte("\n"))+bytes.Count(data, []byte("\r")), bytes.Count(data, []byte(":"))
	marks, rare := 0, 0
	for _, c := range data {
		switch c {
		case '!', '&', '*', '%', '@', '`':
			rare++
		case ',', '-', '?', '[', ']', '{', '}', '"', '\'', '|', '>', '#':
			marks++
		}
	}
	if lines > maxLines || marks > maxMarks || colons > maxColons || rare > maxRare {
		return &lineError{0, "too much for an agent file; at most 4000 lines are read"}
	}
	return nil
}

// tooDeep returns the first line with text that may be nested too deeply, or 0.
func tooDeep(data []byte) int {
	line, flow := 1, 0
	for text := range bytes.Lines(data) {
		marks, start := 0, true // of a line that begins with several nested lists or keys
		for i, c := range text {
			switch c {
			case '[', '{':
				flow++
			case ']', '}':
				flow = max(flow-1, 0)
			}
			if start {
				switch {
				case (c == '-' || c == '?') && i+1 < len(text) && text[i+1] == ' ':
					marks++
				case c != ' ':
					start = false
				}
			}
			if c == ':' && i+1 < len(text) && text[i+1] == ' ' && flow == 0 {
				marks++
			}
			if flow > maxDepth || marks > maxDepth {
				return line
			}
		}
		line++
	}
	return 0
}

func lineOf(t *token.Token) int {
	if t == nil || t.Position == nil {
		return 0
	}
	return t.Position.Line
}

func fromYAML(v ast.Node, depth int) (node, error) {
	n := node{line: lineOf(v.GetToken())}
	if depth > maxDepth {
		return node{}, &lineError{n.line, "nested too deeply"}
	}
	switch v := v.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		n.kind, n.text = kindBool, v.GetToken().Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.kind, n.text = kindNumber, v.GetToken().Value
	case *ast.StringNode:
		n.kind, n.text = kindString, v.Value
	case *ast.LiteralNode:
		n.kind, n.text = kindString, v.Value.Value
	case *ast.SequenceNode:
		n.kind = kindList
		for _, e := range v.Values {
			item, err := fromYAML(e, depth+1)
			if err != nil {
				return node{}, err
			}
			n.list = append(n.list, item)
		}
	case *ast.MappingNode:
		n.kind = kindMap
		for _, pair := range v.Values {
			m, err := fromPair(pair, depth)
			if err != nil {
				return node{}, err
			}
			n.members = append(n.members, m)
		}
	case *ast.MappingValueNode:
		m, err := fromPair(v, depth)
		if err != nil {
			return node{}, err
		}
		n.kind, n.members = kindMap, []member{m}
	default:
		return node{}, &lineError{n.line,
			fmt.Sprintf("%s: anchors, aliases, tags and merge keys are not used in agent files; write the value out",
				v.Type())}
	}
	return n, nil
}

func fromPair(pair *ast.MappingValueNode, depth int) (member, error) {
	line := lineOf(pair.Key.GetToken())
	key, ok := pair.Key.(ast.ScalarNode)
	if !ok || pair.Key.IsMergeKey() {
		return member{}, &lineError{line, "a key must be a plain word"}
	}
	value, err := fromYAML(pair.Value, depth+1)
	if err != nil {
		return member{}, err
	}
	text := key.GetToken().Value
	if s, ok := key.(*ast.StringNode); ok {
		text = s.Value
	}
	return member{key: text, line: line, value: value}, nil
}

// nearest returns the known word that w was probably meant to be, or "".
func nearest(w string, known []string) string {
	best, least := "", math.MaxInt
	for _, k := range known {
		if d := distance(w, k); d < least {
			best, least = k, d
		}
	}
	if least > 1+len(best)/4 {
		return ""
	}
	return best
}

// distance is the Levenshtein distance, ignoring case, dashes and underscores.
func distance(a, b string) int {
	x, y := fold(a), fold(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		diagonal := row[0]
		row[0] = i + 1
		for j := range y {
			cost := diagonal
			if x[i] != y[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(y)]
}

func fold(s string) []byte {
	out := make([]byte, 0, len(s))
	for _, b := range []byte(s[:min(len(s), 64)]) {
		switch {
		case b == '-' || b == '_':
		case b >= 'A' && b <= 'Z':
			out = append(out, b+'a'-'A')
		default:
			out = append(out, b)
		}
	}
	return out
}
