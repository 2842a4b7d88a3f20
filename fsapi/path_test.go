package fsapi

import "testing"

func TestTidyKeepsWhatAPathMeans(t *testing.T) {
	for path, want := range map[string]string{
		"/":            "/",
		"//":           "/",
		"/.":           "/",
		"/a/b":         "/a/b",
		"/a//b/":       "/a/b",
		"/a/./b/.":     "/a/b",
		"/a/../b":      "/a/../b",
		"/..":          "/..",
		"/.hidden/..a": "/.hidden/..a",
		"/a\xff//\xfe": "/a\xff/\xfe",
		"/a /. /b":     "/a /. /b",
	} {
		if got := tidy(path); got != want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
}
