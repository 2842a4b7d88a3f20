package conformance

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "guestd.internal/proto/guestd/v1"
)

// maxErrorBytes is how large an error may be, status message and details together.
const maxErrorBytes = 4 << 10

// refusal is how a call must fail. The empty fields are not looked at.
type refusal struct {
	code   codes.Code
	reason pb.ErrorReason
	field  string // the request's field, as "spec.cwd", also where that is a stream's header
	path   string // the file
	errno  string // the kernel's symbol
}

// badField is the refusal of a malformed request.
func badField(field string) refusal {
	return refusal{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_INVALID_FIELD, field: field}
}

// wantRefusal fails the case unless err is want.
func wantRefusal(t *testing.T, err error, want refusal) {
	t.Helper()
	if err == nil {
		t.Errorf("the call succeeded; want %v %v", want.code, want.reason)
		return
	}
	got := status.Convert(err)
	if got.Code() != want.code {
		t.Errorf("code %v, want %v: %v", got.Code(), want.code, err)
		return
	}
	info := errorInfo(got)
	if info == nil {
		t.Errorf("the error carries no ErrorInfo: %v", err)
		return
	}
	if info.Domain != "guestd" {
		t.Errorf("domain %q, want %q", info.Domain, "guestd")
	}
	if name := reasonName(want.reason); name != "" && info.Reason != name {
		t.Errorf("reason %q, want %q: %v", info.Reason, name, err)
	}
	if want.field != "" && !sameField(info.Metadata["field"], want.field) {
		t.Errorf("metadata field %q, want %q: %v", info.Metadata["field"], want.field, err)
	}
	if want.path != "" && info.Metadata["path"] != strconv.Quote(want.path) {
		t.Errorf("metadata path %s, want %s: %v", info.Metadata["path"], strconv.Quote(want.path), err)
	}
	if want.errno != "" && info.Metadata["errno"] != want.errno {
		t.Errorf("metadata errno %q, want %q: %v", info.Metadata["errno"], want.errno, err)
	}
	if size := proto.Size(got.Proto()); size > maxErrorBytes {
		t.Errorf("the error has %d bytes, want at most %d", size, maxErrorBytes)
	}
}

// wantCode fails the case unless err has the code; for errors that gRPC itself
// makes, which carry no reason.
func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("code %v, want %v: %v", got, want, err)
	}
}

func errorInfo(s *status.Status) *errdetails.ErrorInfo {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}

// reasonName is how an error carries its reason; empty for the unspecified one.
func reasonName(reason pb.ErrorReason) string {
	if reason == pb.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return ""
	}
	return strings.TrimPrefix(reason.String(), "ERROR_REASON_")
}

// index is the position within a repeated field, that a field's name may have.
var index = regexp.MustCompile(`\[[^]]*\]`)

// sameField says whether got names the field want or what is in it, perhaps with the
// position in a list ("spec.env[2].name").
func sameField(got, want string) bool {
	got = index.ReplaceAllString(got, "")
	return got == want || strings.HasPrefix(got, want+".")
}
