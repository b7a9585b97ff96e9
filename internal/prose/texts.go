package prose

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// Text is something that people read.
type Text struct {
	Pos  token.Pos
	Text string
}

// Texts returns the doc comments of the package and of exported names in a file, and the texts of its errors and log
// messages.
func Texts(file *ast.File) []Text {
	var texts []Text
	doc := func(exported bool, groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if exported && g != nil {
				texts = append(texts, Text{g.Pos(), g.Text()})
			}
		}
	}
	doc(true, file.Doc)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			doc(n.Name.IsExported(), n.Doc)
		case *ast.GenDecl:
			doc(slices.ContainsFunc(n.Specs, exportedSpec), n.Doc)
		case *ast.TypeSpec:
			doc(n.Name.IsExported(), n.Doc, n.Comment)
		case *ast.ValueSpec:
			doc(exportedSpec(n), n.Doc, n.Comment)
		case *ast.Field:
			doc(slices.ContainsFunc(n.Names, (*ast.Ident).IsExported), n.Doc, n.Comment)
		case *ast.CallExpr:
			if isMessage(n) {
				for _, arg := range n.Args {
					texts = appendStrings(texts, arg)
				}
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Message" {
				texts = appendStrings(texts, n.Value)
			}
		}
		return true
	})
	return texts
}

func exportedSpec(s ast.Spec) bool {
	switch s := s.(type) {
	case *ast.TypeSpec:
		return s.Name.IsExported()
	case *ast.ValueSpec:
		return slices.ContainsFunc(s.Names, (*ast.Ident).IsExported)
	}
	return false
}

// isMessage reports whether a call makes an error or writes a log message.
func isMessage(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch sel.Sel.Name {
	case "Errorf", "Debug", "Info", "Warn", "Error",
		"DebugContext", "InfoContext", "WarnContext", "ErrorContext", "Log":
		return true
	case "New":
		of, ok := sel.X.(*ast.Ident)
		return ok && of.Name == "errors"
	}
	return false
}

// appendStrings adds a string literal, or a sum of them.
func appendStrings(texts []Text, e ast.Expr) []Text {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); e.Kind == token.STRING && err == nil && strings.Contains(s, " ") {
			texts = append(texts, Text{e.Pos(), s})
		}
	case *ast.BinaryExpr:
		texts = appendStrings(appendStrings(texts, e.X), e.Y)
	}
	return texts
}
