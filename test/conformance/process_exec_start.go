package conformance

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "guestd.internal/proto/guestd/v1"
)

func (g execCases) ArgumentsArriveByteForByte(t *testing.T) {
	args := []string{"", "two words", "*", "$HOME", "line\nend", "\xff\xfe\x80", `"'\`, "-", "--"}
	out := g.complete(t, script(`printf '%s\001' "$@"`, args...))
	wantText(t, "the arguments", out.stdout(), strings.Join(args, "\x01")+"\x01")
}

func (g execCases) ArgumentOf100KiBArrives(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	out := g.complete(t, script(`printf %s "$1"`, long))
	wantText(t, "the argument", out.stdout(), long)
}

func (g execCases) ArgumentsThatTheKernelRefusesAreTold(t *testing.T) {
	want := refusal{code: codes.ResourceExhausted, reason: pb.ErrorReason_ERROR_REASON_ARGUMENTS_TOO_LONG, errno: "E2BIG"}
	g.refuseExec(t, command("true", strings.Repeat("x", 200<<10)), want)
	many := make([]string, 75)
	for i := range many {
		many[i] = strings.Repeat("x", 100<<10)
	}
	g.refuseExec(t, command(append([]string{"true"}, many...)...), want)
}

func (g execCases) MalformedSpecsAreRefusedNamingTheField(t *testing.T) {
	number := func(n uint32) *uint32 { return &n }
	signed := func(n int32) *int32 { return &n }
	size := func(n uint64) *uint64 { return &n }
	limit := func(name string, soft, hard *uint64) *pb.ResourceLimit {
		return &pb.ResourceLimit{Resource: name, Soft: soft, Hard: hard}
	}
	for _, c := range []struct {
		field  string
		change func(spec *pb.ProcessSpec)
	}{
		{"spec.arguments", func(s *pb.ProcessSpec) { s.Command = command().Command }},
		{"spec.arguments", func(s *pb.ProcessSpec) { s.Command = command("true", "a\x00b").Command }},
		{"spec.shell", func(s *pb.ProcessSpec) { s.Command = shellLine("echo \x00").Command }},
		{"spec.cwd", func(s *pb.ProcessSpec) { s.Cwd = []byte("/\x00") }},
		{"spec.env.name", func(s *pb.ProcessSpec) { s.Env = []*pb.EnvVar{env("", "x")} }},
		{"spec.env.name", func(s *pb.ProcessSpec) { s.Env = []*pb.EnvVar{env("A=B", "x")} }},
		{"spec.env.value", func(s *pb.ProcessSpec) { s.Env = []*pb.EnvVar{env("A", "x\x00")} }},
		{"spec.env", func(s *pb.ProcessSpec) {
			s.Env = []*pb.EnvVar{{Name: []byte("A"), Value: []byte("x"), Unset: true}}
		}},
		{"spec.umask", func(s *pb.ProcessSpec) { s.Umask = number(0o1000) }},
		{"spec.nice", func(s *pb.ProcessSpec) { s.Nice = signed(20) }},
		{"spec.oom_score_adj", func(s *pb.ProcessSpec) { s.OomScoreAdj = signed(-1001) }},
		{"spec.limits", func(s *pb.ProcessSpec) { s.Limits = []*pb.ResourceLimit{limit("files", size(1), size(1))} }},
		{"spec.limits", func(s *pb.ProcessSpec) { s.Limits = []*pb.ResourceLimit{limit("nofile", size(9), size(8))} }},
		{"spec.limits", func(s *pb.ProcessSpec) {
			s.Limits = []*pb.ResourceLimit{limit("core", size(0), nil), limit("core", size(0), nil)}
		}},
		{"spec.labels", func(s *pb.ProcessSpec) { s.Labels = map[string]string{"": "x"} }},
		{"spec.labels", func(s *pb.ProcessSpec) { s.Labels = map[string]string{"key": strings.Repeat("x", 1025)} }},
		{"spec.log_limit_bytes", func(s *pb.ProcessSpec) { s.LogLimitBytes = size(64<<10 - 1) }},
		{"spec.log_limit_bytes", func(s *pb.ProcessSpec) { s.LogLimitBytes = size(64<<20 + 1) }},
		{"spec.terminal", func(s *pb.ProcessSpec) { s.Terminal = &pb.TerminalSize{Rows: 65536, Columns: 80} }},
		{"spec.stdin", func(s *pb.ProcessSpec) { s.Stdin = 99 }},
		{"spec.output", func(s *pb.ProcessSpec) { s.Output = 99 }},
		{"spec.on_disconnect", func(s *pb.ProcessSpec) { s.OnDisconnect = 99 }},
	} {
		t.Run(c.field, func(t *testing.T) {
			spec := command("true")
			c.change(spec)
			g.refuseExec(t, spec, badField(c.field))
		})
	}
	t.Run("no command", func(t *testing.T) { g.refuseExec(t, &pb.ProcessSpec{}, badField("spec")) })
}

func (g execCases) ShellLineIsRunByTheShell(t *testing.T) {
	out := g.complete(t, shellLine(`printf '%s|' "$0" a{b,c} $((6*7)); exit 3`))
	if !strings.HasSuffix(out.stdout(), "|42|") {
		t.Errorf("%v, want the shell's arithmetic", out)
	}
	wantExitCode(t, out.exit, 3)
}

func (g execCases) ShellLineMayBeLongerThanAnArgument(t *testing.T) {
	spec := piped(shellLine(": " + strings.Repeat("x", 1<<20) + "\ncat; echo \"$#\"; exit 6"))
	call := g.exec(t, spec)
	call.input([]byte("its stdin is free\n"), 1<<20)
	call.closeInput()
	out := call.wait(t)
	wantText(t, "stdout", out.stdout(), "its stdin is free\n0\n")
	wantExitCode(t, out.exit, 6)
}

func (g execCases) LoginLineIsRunByALoginBash(t *testing.T) {
	if !g.Capabilities.Bash {
		t.Skip("the guest has no bash")
	}
	spec := shellLine(`shopt -q login_shell && echo login`)
	spec.GetShell().Login = true
	if out := g.complete(t, spec); !strings.HasSuffix(out.stdout(), "login\n") {
		t.Errorf("%v, want a login shell", out)
	}
}

func (g execCases) LoginShellIsTheUsersOwnAndReadsItsProfile(t *testing.T) {
	home := g.folder(t)
	g.put(t, home+"/.profile", "FROM_PROFILE=yes\n")
	spec := piped(&pb.ProcessSpec{Command: &pb.ProcessSpec_LoginShell{LoginShell: &pb.LoginShell{}}})
	spec.Env = []*pb.EnvVar{env("HOME", home)}
	call := g.exec(t, spec)
	call.input([]byte("echo \"$FROM_PROFILE\"; readlink /proc/$$/exe; exit 9\n"), 1<<20)
	call.closeInput()
	out := call.wait(t)
	wantExitCode(t, out.exit, 9)
	shell := g.complete(t, script(`readlink -f "$SHELL"`)).stdout()
	wantText(t, "what the shell says", out.stdout(), "yes\n"+shell)
}

func (g execCases) ProgramIsLookedUpInTheChildsOwnPath(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `printf '#!/bin/sh\necho found\n' >"$1/only-here" && chmod 755 "$1/only-here"`, dir)
	spec := command("only-here")
	spec.Env = []*pb.EnvVar{env("PATH", "/nowhere:"+dir)}
	wantText(t, "stdout", g.complete(t, spec).stdout(), "found\n")
	wantText(t, "stdout", g.complete(t, in(dir, command("./only-here"))).stdout(), "found\n")
}

func (g execCases) CommandThatIsNotThereIsTold(t *testing.T) {
	want := refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_COMMAND_NOT_FOUND}
	g.refuseExec(t, command("no-such-program-anywhere"), want)
	want.errno, want.path = "ENOENT", "/no/such/program"
	g.refuseExec(t, command("/no/such/program"), want)
}

func (g execCases) CommandThatCannotBeExecutedIsTold(t *testing.T) {
	dir := g.folder(t)
	g.sh(t, `printf '#!/bin/sh\n' >"$1/plain" && chmod 644 "$1/plain"`, dir)
	want := refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_COMMAND_NOT_EXECUTABLE}
	want.path = dir + "/plain"
	g.refuseExec(t, command(dir+"/plain"), want)
	want.path = dir
	g.refuseExec(t, command(dir), want)
}

func (g execCases) InterpreterThatIsNotThereIsTold(t *testing.T) {
	file := g.folder(t) + "/script"
	g.sh(t, `printf '#!/no/such/interpreter\n' >"$1" && chmod 755 "$1"`, file)
	g.refuseExec(t, command(file), refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_BAD_INTERPRETER})
}

func (g execCases) WorkingDirectoryIsTheGivenOne(t *testing.T) {
	dir := g.folder(t) + "/\xff\xfe dir"
	g.sh(t, `mkdir "$1"`, dir)
	wantText(t, "pwd", g.complete(t, in(dir, script("pwd"))).stdout(), dir+"\n")
}

func (g execCases) WorkingDirectoryIsTheHomeUnlessTold(t *testing.T) {
	out := g.complete(t, script(`cd "$HOME" && pwd -P`))
	wantText(t, "pwd", g.complete(t, script("pwd -P")).stdout(), out.stdout())
	wantText(t, "pwd of .", g.complete(t, in(".", script("pwd -P"))).stdout(), out.stdout())
}

func (g execCases) WorkingDirectoryThatIsNoneIsToldByName(t *testing.T) {
	dir := g.folder(t)
	missing := dir + "/missing"
	want := refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_CWD_NOT_FOUND, path: missing, errno: "ENOENT"}
	g.refuseExec(t, in(missing, command("true")), want)
	g.touch(t, dir+"/file")
	want = refusal{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_CWD_NOT_FOUND, path: dir + "/file", errno: "ENOTDIR"}
	g.refuseExec(t, in(dir+"/file", command("true")), want)
}

func (g execCases) WorkingDirectoryIsEnteredWithTheUsersRights(t *testing.T) {
	g.needRoot(t)
	closed := g.folder(t) + "/closed"
	g.sh(t, `mkdir -m 700 "$1"`, closed)
	want := refusal{code: codes.PermissionDenied, reason: pb.ErrorReason_ERROR_REASON_CWD_DENIED, path: closed, errno: "EACCES"}
	g.refuseExec(t, as(g.OtherUser, in(closed, command("true"))), want)
}
