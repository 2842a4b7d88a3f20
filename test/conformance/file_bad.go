package conformance

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "guestd.internal/proto/guestd/v1"
)

// fileCases are what all calls of FileService have in common.
type fileCases struct{ *guest }

// calls is every call that this suite covers, with a path and a user, and the name
// of the field that the path stands in.
func (g fileCases) calls(t *testing.T, user, path string) map[string]func() error {
	raw := []byte(path)
	return map[string]func() error{
		"Stat path": func() error {
			_, err := g.file.Stat(within(t), &pb.StatRequest{User: user, Path: raw})
			return err
		},
		"List path": func() error {
			_, err := g.list(within(t), &pb.FileServiceListRequest{User: user, Path: raw})
			return err
		},
		"Read path": func() error {
			_, _, err := g.readFile(within(t), &pb.ReadRequest{User: user, Path: raw})
			return err
		},
		"Write path": func() error {
			_, err := g.writeFile(within(t), &pb.WriteHeader{User: user, Path: raw}, nil)
			return err
		},
		"MakeDir path": func() error {
			_, err := g.file.MakeDir(within(t), &pb.MakeDirRequest{User: user, Path: raw})
			return err
		},
		"Remove path": func() error {
			_, err := g.file.Remove(within(t), &pb.RemoveRequest{User: user, Path: raw})
			return err
		},
		"Move source": func() error {
			_, err := g.file.Move(within(t), &pb.MoveRequest{User: user, Source: raw, Destination: []byte("/no/where")})
			return err
		},
		"Move destination": func() error {
			_, err := g.file.Move(within(t), &pb.MoveRequest{User: user, Source: []byte("/no/where"), Destination: raw})
			return err
		},
		"Copy source": func() error {
			_, err := g.file.Copy(within(t), &pb.CopyRequest{User: user, Source: raw, Destination: []byte("/no/where")})
			return err
		},
		"Copy destination": func() error {
			_, err := g.file.Copy(within(t), &pb.CopyRequest{User: user, Source: []byte("/no/where"), Destination: raw})
			return err
		},
		"Link path": func() error {
			_, err := g.file.Link(within(t), &pb.LinkRequest{User: user, Target: []byte("x"), Path: raw, Replace: true})
			return err
		},
		"SetAttributes path": func() error {
			_, err := g.file.SetAttributes(within(t), &pb.SetAttributesRequest{User: user, Path: raw})
			return err
		},
		"Search path": func() error {
			_, err := g.search(within(t), &pb.SearchRequest{User: user, Path: raw})
			return err
		},
	}
}

// each runs every call as a subtest.
func (g fileCases) each(t *testing.T, user, path string, check func(t *testing.T, field string, err error)) {
	t.Helper()
	for name, call := range g.calls(t, user, path) {
		_, field, _ := strings.Cut(name, " ")
		t.Run(name, func(t *testing.T) { check(t, field, call()) })
	}
}

func (g fileCases) EmptyPathIsRefused(t *testing.T) {
	g.each(t, "", "", func(t *testing.T, field string, err error) { wantRefusal(t, err, badField(field)) })
}

func (g fileCases) PathWithNULIsRefused(t *testing.T) {
	g.each(t, "", "/tmp/a\x00b", func(t *testing.T, field string, err error) { wantRefusal(t, err, badField(field)) })
}

func (g fileCases) PathThatIsTooLongIsRefused(t *testing.T) {
	long := "/" + strings.Repeat("long/", 1000)
	g.each(t, "", long, func(t *testing.T, field string, err error) { wantRefusal(t, err, badField(field)) })
}

func (g fileCases) NameThatIsTooLongIsRefused(t *testing.T) {
	long := g.folder(t) + "/" + strings.Repeat("n", 300)
	want := refusal{
		code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_NAME_TOO_LONG, path: long, errno: "ENAMETOOLONG",
	}
	for name, call := range g.calls(t, "", long) {
		if !strings.Contains(name, " path") {
			continue // of two paths the other is not there, which may be seen first
		}
		t.Run(name, func(t *testing.T) { wantRefusal(t, call(), want) })
	}
	g.refuseExec(t, command(long), want)
	g.refuseExec(t, in(long, command("true")), want)
	if g.Capabilities.Bash {
		_, err := g.openExecution(within(t), &pb.ExecuteRequest{Language: "bash", Code: ":", Cwd: []byte(long)})
		wantRefusal(t, err, want)
	}
}

func (g fileCases) UserThatIsNotThereIsTold(t *testing.T) {
	g.each(t, "no-such-user-here", g.folder(t), func(t *testing.T, _ string, err error) {
		wantRefusal(t, err, refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_USER_NOT_FOUND})
	})
}

func (g fileCases) FileInsteadOfADirectoryOnTheWayIsTold(t *testing.T) {
	file := g.folder(t) + "/file"
	g.put(t, file, "x")
	for _, name := range []string{
		"Stat path", "List path", "Read path", "Write path", "MakeDir path", "Remove path", "Move source", "Copy source",
		"Link path", "SetAttributes path", "Search path",
	} {
		t.Run(name, func(t *testing.T) { wantRefusal(t, g.calls(t, "", file+"/below")[name](), notADirectory()) })
	}
}

func (g fileCases) LongPathInAnErrorIsCut(t *testing.T) {
	dir := g.folder(t)
	path := dir + strings.Repeat("/"+strings.Repeat("\xff", 200), 18)
	_, err := g.file.Stat(within(t), &pb.StatRequest{Path: []byte(path)})
	wantRefusal(t, err, refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_FILE_NOT_FOUND})
}

// Ordinary users' links are what a host must not be led astray by.
func (g fileCases) LinkOfAnotherUserLeadsNowhereThatTheUserMayNotGo(t *testing.T) {
	g.needRoot(t)
	dir := g.folder(t)
	g.sh(t, `cd "$1" && mkdir -m 700 secret && echo secret >secret/file && ln -s secret door`, dir)
	for _, name := range []string{"Stat path", "Read path", "Write path", "Remove path", "Link path", "SetAttributes path", "Search path"} {
		t.Run(name, func(t *testing.T) {
			wantRefusal(t, g.calls(t, g.OtherUser, dir+"/door/file")[name](), denied())
		})
	}
	g.wantContents(t, dir+"/secret/file", "secret\n")
}
