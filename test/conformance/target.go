package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "guestd.internal/proto/guestd/v1"
)

// Target is a guestd to be tested.
type Target struct {
	// Name is the name of the target's subtest; it is not empty.
	Name string

	// Dial connects to the target. It is called several times: some cases break
	// their connection. The connection is closed when the test given ends.
	Dial func(t *testing.T) *grpc.ClientConn

	// Fresh starts another guestd of the same kind, that a case may reconfigure
	// and shut down, and connects to it; it ends with the test given. Nil: such
	// cases are skipped.
	Fresh func(t *testing.T) *grpc.ClientConn

	// GuestDir is a folder of the guest that every user may enter and write, as
	// /tmp; empty is /tmp.
	GuestDir string

	// OtherUser is the name of an account of the guest that is neither root nor the
	// default user, and is in no group but its own; empty is nobody.
	OtherUser string

	// Capabilities says what the target can do beyond the least.
	Capabilities Capabilities
}

// Capabilities are what some targets have and others have not; cases that need one
// are skipped where it is missing.
type Capabilities struct {
	Root   bool // guestd runs as root and serves every user
	Python bool // the default Python context works, with matplotlib and pandas
	Bash   bool // the guest has bash
	Slow   bool // the guest is emulated: amounts are a tenth of the usual
}

// patience bounds a case's calls. It proves nothing about speed: it ends a case
// that would hang for ever.
const patience = 60 * time.Second

// errPatience is the cause of a call that was given up.
var errPatience = errors.New("the case's time ran out: something hangs")

// Run runs all cases that the target's capabilities allow.
func Run(t *testing.T, target Target) {
	if target.GuestDir == "" {
		target.GuestDir = "/tmp"
	}
	if target.OtherUser == "" {
		target.OtherUser = "nobody"
	}
	g := connect(t, target)
	g.group(t, "Run", runCases{g})
	g.group(t, "Exec", execCases{g})
	g.group(t, "Terminal", terminalCases{g})
	g.optional(t, "Start", startCases{g}, pb.ProcessService_Start_FullMethodName, pb.ProcessService_Wait_FullMethodName)
	g.optional(t, "Attach", attachCases{g}, pb.ProcessService_Attach_FullMethodName)
	g.optional(t, "Reader", readerCases{g}, pb.ProcessService_Attach_FullMethodName, pb.ProcessService_Wait_FullMethodName)
	g.group(t, "Stat", statCases{g})
	g.group(t, "List", listCases{g})
	g.group(t, "Read", readCases{g})
	g.group(t, "Write", writeCases{g})
	g.group(t, "MakeDir", makeDirCases{g})
	g.group(t, "Remove", removeCases{g})
	g.group(t, "Move", moveCases{g})
	g.optional(t, "Archive", archiveCases{g}, pb.FileService_Archive_FullMethodName)
	g.optional(t, "Extract", extractCases{g}, pb.FileService_Archive_FullMethodName, pb.FileService_Extract_FullMethodName)
	g.group(t, "Copy", copyCases{g})
	g.group(t, "Link", linkCases{g})
	g.group(t, "SetAttributes", attributeCases{g})
	g.group(t, "Search", searchCases{g})
	g.optional(t, "Watch", watchCases{g}, pb.FileService_Watch_FullMethodName)
	g.group(t, "File", fileCases{g})
	g.group(t, "System", systemCases{g})
	g.group(t, "RequestID", requestIDCases{g})
	if target.Capabilities.Python {
		// Cases of one context would queue up behind each other and see each other's variables and dead kernels.
		g.sequence(t, "Code", codeCases{g})
		g.sequence(t, "Context", contextCases{g})
		g.sequence(t, "Language", languageCases{g})
	}
	if target.Fresh != nil {
		g.sequence(t, "Fresh", freshCases{g})
	}
}

// guest is a target with a connection that most cases share.
type guest struct {
	Target
	conn    *grpc.ClientConn
	process pb.ProcessServiceClient
	file    pb.FileServiceClient
	code    pb.CodeServiceClient
	system  pb.SystemServiceClient
}

func connect(t *testing.T, target Target) *guest {
	t.Helper()
	return over(target, target.Dial(t))
}

// over is a guest behind conn.
func over(target Target, conn *grpc.ClientConn) *guest {
	return &guest{
		Target:  target,
		conn:    conn,
		process: pb.NewProcessServiceClient(conn),
		file:    pb.NewFileServiceClient(conn),
		code:    pb.NewCodeServiceClient(conn),
		system:  pb.NewSystemServiceClient(conn),
	}
}

// group runs the exported methods of cases as parallel subtests of a subtest.
func (g *guest) group(t *testing.T, name string, cases any) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		eachCase(cases, func(name string, run func(*testing.T)) {
			t.Run(name, func(t *testing.T) { t.Parallel(); run(t) })
		})
	})
}

// optional is group for calls that a guestd need not serve yet.
func (g *guest) optional(t *testing.T, name string, cases any, methods ...string) {
	for _, method := range methods {
		if !g.serves(t, method) {
			t.Run(name, func(t *testing.T) { t.Skipf("not served: %s", method) })
			return
		}
	}
	g.group(t, name, cases)
}

// sequence is group with the cases one after the other, in the order of their names.
func (g *guest) sequence(t *testing.T, name string, cases any) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		eachCase(cases, func(name string, run func(*testing.T)) { t.Run(name, run) })
	})
}

func eachCase(cases any, do func(name string, run func(*testing.T))) {
	value := reflect.ValueOf(cases)
	for i := range value.NumMethod() {
		run, ok := value.Method(i).Interface().(func(*testing.T))
		if !ok {
			panic(fmt.Sprintf("%T.%s is no case", cases, value.Type().Method(i).Name))
		}
		do(value.Type().Method(i).Name, run)
	}
}

// amount scales a number of bytes or repetitions to the target.
func (g *guest) amount(n int) int {
	if g.Capabilities.Slow {
		return n / 10
	}
	return n
}

// within is the case's context: it ends with the case or after patience.
func within(t *testing.T) context.Context {
	t.Helper()
	return bounded(t, t.Context())
}

// afterwards is a context for what a cleanup calls, when within's has ended.
func afterwards(t *testing.T) context.Context {
	t.Helper()
	return bounded(t, context.WithoutCancel(t.Context()))
}

func bounded(t *testing.T, parent context.Context) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(parent, patience, errPatience)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until holds says so; what names it in the failure.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

// needRoot skips a case that acts as several users.
func (g *guest) needRoot(t *testing.T) {
	t.Helper()
	if !g.Capabilities.Root {
		t.Skip("guestd does not run as root: it serves its own user only")
	}
}

// folder makes a folder in the guest that every user may write, and removes it
// with all that is in it when the case ends.
func (g *guest) folder(t *testing.T) string {
	t.Helper()
	mode := uint32(0o777)
	dir := path.Join(g.GuestDir, fmt.Sprintf("conformance-%08x", rand.Uint32()))
	if _, err := g.file.MakeDir(within(t), &pb.MakeDirRequest{Path: []byte(dir), Mode: &mode}); err != nil {
		t.Fatalf("making the case's folder: %v", err)
	}
	t.Cleanup(func() {
		request := &pb.RemoveRequest{User: g.owner(), Path: []byte(dir), Recursive: true, IgnoreMissing: true}
		if _, err := g.file.Remove(afterwards(t), request); err != nil {
			t.Errorf("removing the case's folder: %v", err)
		}
	})
	return dir
}

// owner is a user that may remove whatever a case made.
func (g *guest) owner() string {
	if g.Capabilities.Root {
		return "root"
	}
	return ""
}
