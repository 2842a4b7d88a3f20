package glob

import (
	"errors"
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		glob  string
		match string // paths, separated by blanks; folders end in a slash
		other string
	}{
		{"*", "a a/b .hidden a/ é", ""},
		{"*.txt", ".txt a.txt a/b/c.txt a.txt/", "a.txtx txt a.txt/b"},
		{"a*b*c", "abc axxbxxc abcbc", "abcb ab acb"},
		{"*a*a*", "aa xaxaxax", "a xax"},
		{"?", "a é x/y \xff", "ab"},
		{"??", "éé é\xff \xff\xfe", "é a"},
		{"*??", "éé ééé", "é"},
		{"[a-c]x", "ax bx y/cx", "dx x éx"},
		{"[!a-c]x", "dx éx \xffx", "ax x"},
		{"[^é]", "e", "é"},
		{"[]]", "]", "["},
		{"[!]a]", "b", "] a"},
		{"[a-]", "a -", "b"},
		{`[\]-a]`, "] ^ a", "b"},
		{"[[:digit:][:upper:]x]*", "1 X x1", "y é"},
		{`\*\?\[`, "*?[", "aab"},
		{"a/b", "a/b", "b x/a/b a/b/c a"},
		{"/a", "a", "b/a"},
		{"/*", "a b", "a/b"},
		{"a/*/c", "a/b/c", "a/c a/b/b/c"},
		{"**/c", "c a/c a/b/c", "cc c/a"},
		{"a/**", "a/b a/b/c", "a b/a ab"},
		{"a/**/c", "a/c a/b/c a/b/b/c a/c/c", "c a/b ac x/a/c"},
		{"**/a/**/b", "a/b x/a/b x/a/y/a/z/b", "b a b/a"},
		{"**/a/*/b", "a/x/b a/a/x/b a/a/b y/a/b/b", "a/b a/x/y/b"},
		{"/**", "a a/b", ""},
		{"**", "a a/b", ""},
		{"a**b", "ab axxb y/ab", "a/b"},
		{"a/x**", "a/x a/xy", "a/x/y"},
		{"build/", "build/ a/build/", "build a/build"},
		{"/build/", "build/", "build a/build/"},
		{"a/**/", "a/b/ a/b/c/", "a/b a/"},
		{"ab\xffc", "ab\xffc", "ab\xfec ab\uFFFDc"},
	} {
		p, err := Compile(c.glob)
		if err != nil {
			t.Errorf("%q: %v", c.glob, err)
			continue
		}
		for want, paths := range map[bool]string{true: c.match, false: c.other} {
			for _, text := range strings.Fields(paths) {
				name, folder := strings.CutSuffix(text, "/")
				if p.Match(name, folder) != want {
					t.Errorf("%q matches %q: %v", c.glob, text, !want)
				}
			}
		}
	}
}

func TestCompileErrors(t *testing.T) {
	for glob, want := range map[string]error{
		"": ErrEmpty, "/": ErrName, "//": ErrName, "a//b": ErrName, "./a": ErrName, "a/..": ErrName, ".": ErrName,
		"a\x00": ErrNUL, "[": ErrSyntax, "[a": ErrSyntax, "[]": ErrSyntax, "[!": ErrSyntax, "[b-a]": ErrSyntax, `a\`: ErrSyntax,
		`[a\`: ErrSyntax, "[a-": ErrSyntax, "[[:nonsense:]]": ErrSyntax, "[[:alpha": ErrSyntax, "[a/b]": ErrSyntax, `a\/`: ErrSyntax,
		strings.Repeat("a", MaxLength+1): ErrTooLong,
	} {
		if _, err := Compile(glob); !errors.Is(err, want) {
			t.Errorf("%.20q: %v, want %v", glob, err, want)
		}
	}
	if _, err := Compile(strings.Repeat("a", MaxLength)); err != nil {
		t.Error(err)
	}
}

// TestHostileGlobs would take longer than the universe if matching were not
// bounded.
func TestHostileGlobs(t *testing.T) {
	for _, c := range []struct{ glob, path string }{
		{strings.Repeat("*a", MaxLength/2), strings.Repeat("a", 255)},
		{strings.Repeat("a*", 1000) + "b", strings.Repeat("a", 255)},
		{"x/" + strings.Repeat("**/a/", 500) + "b", "x/" + strings.Repeat("a/", 250) + "c"},
		{"**/" + strings.Repeat("*a*b*/", 500) + "z", strings.Repeat("abababab/", 250) + "y"},
	} {
		p, err := Compile(c.glob)
		if err != nil {
			t.Fatal(err)
		}
		if p.Match(c.path, false) {
			t.Errorf("%.20q matches", c.glob)
		}
	}
}

// FuzzMatch compares with path.Match where that knows the syntax, and with a
// plain recursive matcher for "**".
func FuzzMatch(f *testing.F) {
	for _, glob := range []string{"*.go", "a/**/b", "[!x-z]?*", `\[a]`, "**/x/", "[[:alpha:]]", "/a/**", "***/b"} {
		f.Add(glob, "a/x/b")
	}
	f.Add("*\xb3", "\u88f3") // the second is three bytes that end in the first's last
	f.Fuzz(func(t *testing.T, glob, text string) {
		p, err := Compile(glob)
		if err != nil || text == "" {
			return
		}
		if text != path.Clean(text) || strings.HasPrefix(text, "/") {
			return
		}
		got := p.Match(text, true)
		if want := slowMatch(p.names, strings.Split(text, "/")); p.wholePath && got != want {
			t.Errorf("%q matches %q: %v, should be %v", glob, text, got, want)
		}
		if strings.ContainsAny(glob, `[\`) || strings.Contains(glob, "**") || !utf8.ValidString(glob) {
			return // path.Match has other sets, and lets "*" end within a character
		}
		subject := text
		if !p.wholePath {
			subject = path.Base(text)
		}
		want, err := path.Match(strings.TrimSuffix(strings.TrimPrefix(glob, "/"), "/"), subject)
		if err == nil && got != want {
			t.Errorf("%q matches %q: %v, path.Match says %v", glob, text, got, want)
		}
	})
}

func slowMatch(names []name, parts []string) bool {
	switch {
	case len(names) == 0:
		return len(parts) == 0
	case names[0] == nil:
		return slowMatch(names[1:], parts) || len(parts) > 0 && slowMatch(names, parts[1:])
	}
	return len(parts) > 0 && names[0].match(parts[0]) && slowMatch(names[1:], parts[1:])
}

func BenchmarkMatch(b *testing.B) {
	p, err := Compile("**/src/*.go")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if !p.Match("home/user/project/src/main.go", false) {
			b.Fatal("no match")
		}
	}
}
