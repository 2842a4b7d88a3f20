package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// Limits of size, in lines. Generated code and tests are free of them.
const (
	maxFileLines     = 400
	maxFunctionLines = 80
)

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range goList(t, "./...") {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment: say what it does, what it does not, and who owns and ends its goroutines, processes, files and sockets", p.ImportPath)
		}
	}
}

func TestFilesAndFunctionsStayShort(t *testing.T) {
	for _, p := range goList(t, "./...") {
		for _, name := range p.GoFiles {
			checkLengths(t, filepath.Join(p.Dir, name))
		}
	}
}

func checkLengths(t *testing.T, path string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return
	}
	if ast.IsGenerated(file) {
		return
	}
	if lines := files.File(file.Pos()).LineCount(); lines > maxFileLines {
		t.Errorf("%s has %d lines, %d at most: it holds more than one idea; split it", path, lines, maxFileLines)
	}
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		begin, end := files.Position(function.Pos()), files.Position(function.End())
		if lines := end.Line - begin.Line + 1; lines > maxFunctionLines {
			t.Errorf("%s: %s has %d lines, %d at most: name its steps", begin, function.Name.Name, lines, maxFunctionLines)
		}
	}
}
