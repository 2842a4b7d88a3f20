package conformance

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "guestd.internal/proto/guestd/v1"
)

// rawCodec sends bytes as they are, under protobuf's name, so that a case can say
// what the generated code would refuse to.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

// invoke sends one raw message to a method, of whatever kind it is, and returns
// the call's error after at most one answer.
func (g *guest) invoke(ctx context.Context, method string, message []byte) error {
	// It ends the calls that would stream for ever.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kind := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := g.conn.NewStream(ctx, kind, method, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&message); err != nil {
		// What ended the stream is told by RecvMsg.
		var answer []byte
		return stream.RecvMsg(&answer)
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	var answer []byte
	return stream.RecvMsg(&answer)
}

// notText is a marker and what replaces it on the wire: bytes of the same number
// that are not UTF-8.
const marker, notText = "NOT-TEXT", "NOT\xff\xfe\x80XT"

func (g systemCases) TextThatIsNotUTF8IsRefusedNamingTheField(t *testing.T) {
	spec := command("true")
	for _, c := range []struct {
		method, field string
		message       proto.Message
	}{
		{pb.ProcessService_Run_FullMethodName, "request_id", &pb.RunRequest{RequestId: marker, Spec: spec}},
		{pb.ProcessService_Run_FullMethodName, "spec.user", &pb.RunRequest{Spec: as(marker, command("true"))}},
		{pb.ProcessService_Exec_FullMethodName, "spec.user", &pb.ExecRequest{Request: &pb.ProcessRequest{
			Request: &pb.ProcessRequest_Start{Start: &pb.ExecStart{Spec: as(marker, command("true"))}},
		}}},
		{pb.FileService_Stat_FullMethodName, "user", &pb.StatRequest{User: marker, Path: []byte("/")}},
		{pb.FileService_Read_FullMethodName, "user", &pb.ReadRequest{User: marker, Path: []byte("/")}},
		{pb.FileService_Write_FullMethodName, "user", &pb.WriteRequest{
			Request: &pb.WriteRequest_Header{Header: &pb.WriteHeader{User: marker, Path: []byte("/tmp/x")}},
		}},
		{pb.CodeService_Execute_FullMethodName, "code", &pb.ExecuteRequest{Code: "print('" + marker + "')"}},
		{pb.CodeService_Execute_FullMethodName, "language", &pb.ExecuteRequest{Code: "1", Language: marker}},
		{pb.SystemService_Configure_FullMethodName, "default_user", &pb.ConfigureRequest{DefaultUser: proto.String(marker)}},
	} {
		t.Run(fmt.Sprintf("%s %s", c.method[strings.LastIndexByte(c.method, '/')+1:], c.field), func(t *testing.T) {
			message, err := proto.Marshal(c.message)
			if err != nil {
				t.Fatal(err)
			}
			message = bytes.ReplaceAll(message, []byte(marker), []byte(notText))
			wantRefusal(t, g.invoke(within(t), c.method, message), badField(c.field))
		})
	}
}

func (g systemCases) MessageThatIsNoProtobufIsRefused(t *testing.T) {
	wantCode(t, g.invoke(within(t), pb.ProcessService_Run_FullMethodName, []byte("\xff\xff\xff")), codes.InvalidArgument)
}

func (g systemCases) MessageOverEightMebibytesIsRefused(t *testing.T) {
	large := make([]byte, 8<<20+1)
	for method, message := range map[string]proto.Message{
		pb.ProcessService_Run_FullMethodName: &pb.RunRequest{Spec: command("cat"), Stdin: large},
		pb.ProcessService_Exec_FullMethodName: &pb.ExecRequest{Request: &pb.ProcessRequest{
			Request: &pb.ProcessRequest_Input{Input: &pb.ProcessInput{Data: large}},
		}},
		pb.FileService_Write_FullMethodName:   &pb.WriteRequest{Request: &pb.WriteRequest_Data{Data: large}},
		pb.CodeService_Execute_FullMethodName: &pb.ExecuteRequest{Code: strings.Repeat("x", len(large))},
	} {
		raw, err := proto.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(method, func(t *testing.T) { wantCode(t, g.invoke(within(t), method, raw), codes.ResourceExhausted) })
	}
}

func (g systemCases) StreamOfRequestsWithoutItsHeaderIsRefused(t *testing.T) {
	for method, header := range map[string]string{
		pb.ProcessService_Exec_FullMethodName:   "start",
		pb.ProcessService_Attach_FullMethodName: "attach",
		pb.FileService_Write_FullMethodName:     "header",
		pb.FileService_Extract_FullMethodName:   "header",
	} {
		if !g.serves(t, method) {
			continue
		}
		wantRefusal(t, g.invoke(within(t), method, nil), badField(header))
		kind := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
		stream, err := g.conn.NewStream(within(t), kind, method, grpc.ForceCodec(rawCodec{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, stream.RecvMsg(new([]byte)), badField(header))
	}
}
