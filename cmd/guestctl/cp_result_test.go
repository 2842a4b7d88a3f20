package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestJSONOfWhatChangesFiles holds the verbs whose output is otherwise empty to what
// their help says of --json.
func TestJSONOfWhatChangesFiles(t *testing.T) {
	g := startGuest(t)
	dir := plant(t, map[string]string{"local": "12345", "tree/sub/file": "contents", "full/file": ""})
	for _, c := range []struct {
		stdin, args, want string // DIR stands for dir
	}{
		{"", "cp DIR/local :DIR/in", `{"path":"DIR/in","entries":1,"bytes":5,"failures":0}`},
		{"piped", "cp - :DIR/in", `{"path":"DIR/in","entries":1,"bytes":5,"failures":0}`},
		{"", "cp :DIR/in DIR/out", `{"path":"DIR/out","entries":1,"bytes":5,"failures":0}`},
		{"", "cp :DIR/in :DIR/within", `{"path":"DIR/within","entries":1,"bytes":5,"failures":0}`},
		{"", "cp -rq DIR/tree :DIR/tree-in", `{"path":"DIR/tree-in","entries":3,"bytes":8,"failures":0}`},
		{"", "cp -rq :DIR/tree DIR/tree-out", `{"path":"DIR/tree-out","entries":3,"bytes":8,"failures":0}`},
		{"", "cp -r :DIR/tree :DIR/tree-within", `{"path":"DIR/tree-within","entries":3,"bytes":8,"failures":0}`},
		{"hello", "write DIR/new", `{"path":"DIR/new","bytes":5,"created":true,"in_place":false}`},
		{"again", "write DIR/new", `{"path":"DIR/new","bytes":5,"created":false,"in_place":false}`},
		{"gone", "write /dev/null", `{"path":"/dev/null","bytes":4,"created":false,"in_place":true}`},
		{"", "mv DIR/new DIR/old", `{"path":"DIR/old","old_path":{"path":"DIR/new"}}`},
		{"", "rm DIR/old DIR/in", `{"path":"DIR/old"}` + "\n" + `{"path":"DIR/in"}`},
	} {
		args := strings.Fields(strings.ReplaceAll(c.args, "DIR", dir))
		want := strings.ReplaceAll(c.want, "DIR", dir) + "\n"
		t.Run(args[0], func(t *testing.T) { g.run(t, c.stdin, append(args, "--json")...).want(t, 0, want, "") })
	}

	made := g.run(t, "", "--json", "mkdir", "-p", dir+"/a/b", dir+"/odd\xff")
	if made.code != 0 || strings.Count(made.stdout, "\n") != 2 || !strings.Contains(made.stdout, `"path":"`+dir+`/a/b","type":"directory"`) ||
		!strings.Contains(made.stdout, `"path_base64"`) {
		t.Errorf("mkdir: %+v", made)
	}
	// A copy that leaves something out is an object, and a failure.
	if err := os.MkdirAll(dir+"/clash/file/below", 0o755); err != nil {
		t.Fatal(err)
	}
	g.run(t, "", "--json", "cp", "-rq", dir+"/full/.", ":"+dir+"/clash").want(t, 125,
		fmt.Sprintf(`{"path":"%s/clash","entries":1,"bytes":0,"failures":1}`+"\n", dir), "is a directory")
	g.run(t, "", "--json", "cp", ":"+dir+"/local", "-").want(t, 125, "", "--json")
}
