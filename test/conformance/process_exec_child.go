package conformance

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "guestd.internal/proto/guestd/v1"
)

// These cases are about what a child is and finds when it starts: its user,
// environment, descriptors and limits.

func (g execCases) UserMayBeNamedOrNumbered(t *testing.T) {
	g.needRoot(t)
	uid := g.sh(t, `id -u "$1"`, g.OtherUser)
	gid := g.sh(t, `id -g "$1"`, g.OtherUser)
	for user, want := range map[string]string{
		g.OtherUser:           uid + " " + gid,
		uid:                   uid + " " + gid,
		uid + ":" + gid:       uid + " " + gid,
		uid + ":0":            uid + " 0",
		g.OtherUser + ":root": uid + " 0",
		"54321:12345":         "54321 12345",
		"root":                "0 0",
	} {
		t.Run(user, func(t *testing.T) {
			out := g.complete(t, in("/", as(user, script(`echo "$(id -u) $(id -g)"`))))
			wantText(t, "uid and gid", out.stdout(), want+"\n")
		})
	}
}

func (g execCases) UserHasItsOwnVariablesAndNoOtherGroups(t *testing.T) {
	g.needRoot(t)
	out := g.complete(t, in("/", as(g.OtherUser, script(`echo "$USER $LOGNAME"; id -G; [ -n "$HOME" ] && [ -n "$PATH" ] && [ -n "$SHELL" ] && echo all`))))
	want := fmt.Sprintf("%[1]s %[1]s\n%[2]s\nall\n", g.OtherUser, g.sh(t, `id -G "$1"`, g.OtherUser))
	wantText(t, "the user's variables and groups", out.stdout(), want)
}

func (g execCases) UserThatIsNotThereIsTold(t *testing.T) {
	for _, user := range []string{"no-such-user-here", "root:no-such-group", "-1", "4294967295", "0:"} {
		t.Run(user, func(t *testing.T) {
			g.refuseExec(t, as(user, command("true")), refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_USER_NOT_FOUND})
		})
	}
}

func (g execCases) WithoutRootAnotherUserIsRefused(t *testing.T) {
	if g.Capabilities.Root {
		t.Skip("guestd runs as root: it serves every user")
	}
	want := refusal{code: codes.PermissionDenied, reason: pb.ErrorReason_ERROR_REASON_OTHER_USER_WITHOUT_ROOT}
	g.refuseExec(t, as("root", command("true")), want)
}

func (g execCases) EnvironmentChangesApplyInOrder(t *testing.T) {
	spec := script(`printf '%s|' "$A" "${B-unset}" "${C-unset}" "$HOME" "${USER-unset}"`)
	spec.Env = []*pb.EnvVar{
		env("A", "first"), env("A", "\xffsecond\n"),
		env("B", "set"), {Name: []byte("B"), Unset: true},
		env("C", ""), env("HOME", "/elsewhere"), {Name: []byte("USER"), Unset: true},
	}
	wantText(t, "the variables", g.complete(t, spec).stdout(), "\xffsecond\n|unset||/elsewhere|unset|")
}

func (g execCases) ClearedEnvironmentHasNothingOfTheLayers(t *testing.T) {
	spec := command("/bin/sh", "-c", `printf '%s|' "${HOME-unset}" "${USER-unset}" "${LOGNAME-unset}" "${SHELL-unset}" "$A"`)
	spec.ClearEnv, spec.Env = true, []*pb.EnvVar{env("A", "kept")}
	wantText(t, "the variables", g.complete(t, spec).stdout(), "unset|unset|unset|unset|kept|")
}

func (g execCases) ChildKnowsItsProcessIDAndNothingOfGuestd(t *testing.T) {
	out := g.complete(t, script(`printf %s "$GUESTD_PROCESS_ID"; export -p | while read -r line; do
		case $line in *GUESTD_PROCESS_ID=*) ;; *GUESTD_*|*NOTIFY_SOCKET*) echo " $line" ;; esac; done`))
	wantText(t, "GUESTD_PROCESS_ID and the rest", out.stdout(), out.started.ProcessId)
}

func (g execCases) StdinIsTheNullDeviceUnlessAskedFor(t *testing.T) {
	out := g.complete(t, script(`cat; [ -c /proc/self/fd/0 ] && readlink /proc/self/fd/0`))
	wantText(t, "stdin", out.stdout(), "/dev/null\n")
}

func (g execCases) ChildInheritsNoDescriptors(t *testing.T) {
	// The pattern's own look into the folder may show as one more.
	out := g.complete(t, script(`cd "/proc/$$/fd" && echo *`))
	if names := strings.Fields(out.stdout()); len(names) > 4 || strings.Join(names[:min(3, len(names))], " ") != "0 1 2" {
		t.Errorf("descriptors %v, want 0 1 2", names)
	}
}

func (g execCases) ChildLeadsASessionOfItsOwn(t *testing.T) {
	out := g.complete(t, script(`read -r pid comm state ppid group session terminal rest <"/proc/$$/stat"; echo "$group $session $terminal"`))
	wantText(t, "group, session and terminal", out.stdout(), fmt.Sprintf("%[1]d %[1]d 0\n", out.started.Pid))
}

func (g execCases) ChildHasOrdinarySignalsAndUmask(t *testing.T) {
	wantText(t, "the umask", g.complete(t, script(`umask`)).stdout(), "0022\n")
	// A shell may have settings of its own: cat tells what it was started with.
	var signals []string
	for line := range strings.Lines(g.complete(t, command("cat", "/proc/self/status")).stdout()) {
		if strings.HasPrefix(line, "SigBlk:") || strings.HasPrefix(line, "SigIgn:") {
			signals = append(signals, strings.Join(strings.Fields(line), " "))
		}
	}
	want := "SigBlk: 0000000000000000, SigIgn: 0000000000000000"
	wantText(t, "the signals", strings.Join(signals, ", "), want)
}

func (g execCases) UmaskNiceAndLimitsAreAsAsked(t *testing.T) {
	mask, nice, soft, hard := uint32(0o027), int32(5), uint64(64), uint64(128)
	spec := script(`umask; ulimit -S -n; ulimit -H -n; cut -d ' ' -f 19 /proc/self/stat`)
	spec.Umask, spec.Nice = &mask, &nice
	spec.Limits = []*pb.ResourceLimit{{Resource: "nofile", Soft: &soft, Hard: &hard}}
	wantText(t, "umask, limits and nice", g.complete(t, spec).stdout(), "0027\n64\n128\n5\n")
}

func (g execCases) OOMScoreMayBeRaised(t *testing.T) {
	score := int32(500)
	spec := command("cat", "/proc/self/oom_score_adj")
	spec.OomScoreAdj = &score
	wantText(t, "oom_score_adj", g.complete(t, spec).stdout(), "500\n")
}

// LimitsOfAnotherUserAreAsAsked: lower ones take no rights that guestd may lack in a container, with or
// without what else is set while a child waits.
func (g execCases) LimitsOfAnotherUserAreAsAsked(t *testing.T) {
	g.needRoot(t)
	soft, hard, none, score := uint64(64), uint64(128), uint64(0), int32(500)
	for _, oom := range []*int32{nil, &score} {
		spec := script(`id -u; ulimit -S -n; ulimit -H -n; ulimit -H -c`)
		spec.User, spec.OomScoreAdj = "65534:65534", oom
		spec.Limits = []*pb.ResourceLimit{
			{Resource: "nofile", Soft: &soft, Hard: &hard}, {Resource: "core", Soft: &none, Hard: &none},
		}
		wantText(t, "user and limits", g.complete(t, spec).stdout(), "65534\n64\n128\n0\n")
	}
}
