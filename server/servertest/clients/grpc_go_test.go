package clients

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store/storetest"
)

const (
	generateText = "/ktms.v1.GatewayService/GenerateText"
	streamText   = "/ktms.v1.GatewayService/GenerateTextStream"
)

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(address, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func as(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key)
}

func textRequest(model, text string) *ktmsv1.GenerateTextRequest {
	return &ktmsv1.GenerateTextRequest{Effort: ktmsv1.Effort_EFFORT_LOW, ModelOverride: model,
		Messages: []*ktmsv1.Message{{Role: ktmsv1.MessageRole_MESSAGE_ROLE_USER, Text: text}}}
}

// openStream begins a GenerateTextStream.
func openStream(ctx context.Context, conn *grpc.ClientConn, req *ktmsv1.GenerateTextRequest) (grpc.ClientStream, error) {
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, streamText)
	if err != nil {
		return nil, err
	}
	return s, errors.Join(s.SendMsg(&ktmsv1.GenerateTextStreamRequest{Request: req}), s.CloseSend())
}

// collect reads a stream to its end; io.EOF is a good one.
func collect(s grpc.ClientStream) (chunks []*ktmsv1.GenerateTextChunk, text string, err error) {
	for {
		chunk := &ktmsv1.GenerateTextChunk{}
		if err := s.RecvMsg(chunk); err != nil {
			return chunks, text, err
		}
		chunks = append(chunks, chunk)
		text += chunk.GetDelta()
	}
}

func TestGRPCGo_Unary(t *testing.T) {
	w := start(t)
	conn := dial(t, w.GRPC)
	var r ktmsv1.GenerateTextResponse
	var header metadata.MD
	if err := conn.Invoke(as(t.Context(), w.key), generateText, textRequest("", "hi"), &r, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	if r.GetChoices()[0].GetText() != hello || r.GetResolvedModel() != good || r.GetUsage().GetInput()+r.GetUsage().GetOutput() != total {
		t.Errorf("got %v", &r)
	}
	if len(header.Get("x-ktms-request-id")) != 1 || !slices.Equal(header.Get("x-ktms-rule"), []string{"all"}) {
		t.Errorf("header: %v", header)
	}
}

func TestGRPCGo_Stream(t *testing.T) {
	w := start(t)
	s, err := openStream(as(t.Context(), w.key), dial(t, w.GRPC), textRequest("", "hi"))
	if err != nil {
		t.Fatal(err)
	}
	chunks, text, err := collect(s)
	if !errors.Is(err, io.EOF) || text != hello {
		t.Fatalf("%q, %v", text, err)
	}
	last := chunks[len(chunks)-1]
	if chunks[0].GetResolvedModel() != good || last.GetUsage().GetOutput() != 5 {
		t.Errorf("the first chunk names the model, the last one the usage: got %v and %v", chunks[0], last)
	}
}

func TestGRPCGo_Tools(t *testing.T) {
	w := start(t)
	req := textRequest("", "weather and time?")
	for _, name := range []string{"weather", "time"} {
		req.Tools = append(req.Tools, &ktmsv1.Tool{Name: name, ParametersJson: `{"type":"object","properties":{"city":{"type":"string"}}}`})
	}
	conn, ctx := dial(t, w.GRPC), as(t.Context(), w.key)
	var r ktmsv1.GenerateTextResponse
	if err := conn.Invoke(ctx, generateText, req, &r); err != nil {
		t.Fatal(err)
	}
	calls := r.GetChoices()[0].GetToolCalls()
	if len(calls) != 2 || calls[0].GetArguments() != `{"city":"Paris"}` || calls[1].GetName() != "time" {
		t.Fatalf("got %v", calls)
	}
	s, err := openStream(ctx, conn, req)
	if err != nil {
		t.Fatal(err)
	}
	chunks, _, err := collect(s)
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	arguments := map[int32]string{}
	for _, chunk := range chunks {
		for _, c := range chunk.GetToolCallChunks() {
			arguments[c.GetIndex()] += c.GetName() + c.GetArguments()
		}
	}
	if len(arguments) != 2 || arguments[0] != `weather{"city":"Paris"}` || arguments[1] != "time{}" {
		t.Errorf("streamed: %v", arguments)
	}
	req.Messages = append(req.Messages, &ktmsv1.Message{Role: ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT, ToolCalls: calls},
		&ktmsv1.Message{Role: ktmsv1.MessageRole_MESSAGE_ROLE_TOOL, ToolCallId: "call_1", Text: "sunny"},
		&ktmsv1.Message{Role: ktmsv1.MessageRole_MESSAGE_ROLE_TOOL, ToolCallId: "call_2", Text: "noon"})
	if err := conn.Invoke(ctx, generateText, req, &r); err != nil || r.GetChoices()[0].GetText() != toolsSaid {
		t.Errorf("the second turn: %v, %v", &r, err)
	}
}

// detail finds the detail of one type.
func detail[M proto.Message](err error) (found M) {
	for _, d := range status.Convert(err).Details() {
		if m, ok := d.(M); ok {
			found = m
		}
	}
	return found
}

func TestGRPCGo_Errors(t *testing.T) {
	w := start(t)
	conn := dial(t, w.GRPC)
	nonsense := textRequest("", "hi")
	nonsense.Temperature = proto.Float64(9)
	for _, want := range []struct {
		name, key string
		req       *ktmsv1.GenerateTextRequest
		code      codes.Code
		reason    string
	}{
		{"a wrong key", "ktms_wrong", textRequest("", "hi"), codes.Unauthenticated, "invalid_api_key"},
		{"a key without the scope", w.reader, textRequest("", "hi"), codes.PermissionDenied, "insufficient_scope"},
		{"an unknown model", w.key, textRequest("nope", "hi"), codes.NotFound, "model_not_found"},
		{"a bad request", w.key, nonsense, codes.InvalidArgument, "bad_request"},
		{"a vendor that is down", w.key, textRequest(down, "hi"), codes.Unavailable, "vendors_unavailable"},
		{"a vendor that is not there", w.key, textRequest(unreachable, "hi"), codes.Unavailable, "vendors_unavailable"},
		{"a key without money", w.broke, textRequest(dear, "hi"), codes.ResourceExhausted, "insufficient_quota"},
	} {
		t.Run(want.name, func(t *testing.T) {
			before, ctx := w.vendor.seen(down), as(t.Context(), want.key)
			errs := []error{conn.Invoke(ctx, generateText, want.req, &ktmsv1.GenerateTextResponse{})}
			s, err := openStream(ctx, conn, want.req)
			if err == nil {
				_, _, err = collect(s)
			}
			for _, err := range append(errs, err) {
				info := detail[*errdetails.ErrorInfo](err)
				if status.Code(err) != want.code || info.GetReason() != want.reason || info.GetDomain() != "ktms" {
					t.Errorf("got %v with %v, want %v with %s", err, info, want.code, want.reason)
				}
				if wait := detail[*errdetails.RetryInfo](err); want.code == codes.ResourceExhausted && wait.GetRetryDelay().AsDuration() <= 0 {
					t.Errorf("no wait is named: %v", wait)
				}
				if bad := detail[*errdetails.BadRequest](err); want.code == codes.InvalidArgument &&
					(len(bad.GetFieldViolations()) != 1 || !strings.Contains(bad.GetFieldViolations()[0].GetField(), "temperature")) {
					t.Errorf("the mistake is not named: %v", bad)
				}
			}
			if calls := w.vendor.seen(down) - before; want.req.GetModelOverride() == down && calls != 2*attemptsPerCall {
				t.Errorf("the vendor saw %d calls, want %d", calls, 2*attemptsPerCall)
			}
		})
	}
	s, err := openStream(as(t.Context(), w.key), conn, textRequest(dies, "hi"))
	if err != nil {
		t.Fatal(err)
	}
	if _, text, err := collect(s); status.Code(err) != codes.Unavailable || detail[*errdetails.ErrorInfo](err).GetReason() != "vendors_unavailable" || text != "Hel" {
		t.Errorf("a broken stream: %q, %v", text, err)
	}
}

func TestGRPCGo_Abort(t *testing.T) {
	w := start(t)
	ctx, cancel := context.WithCancel(as(t.Context(), w.key))
	defer cancel()
	s, err := openStream(ctx, dial(t, w.GRPC), textRequest("", forEver))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.RecvMsg(&ktmsv1.GenerateTextChunk{}); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if _, _, err := collect(s); status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
	storetest.Eventually(t, 5*time.Second, "the vendor's stream ends", func() bool { return !w.vendor.streaming() })
}

func TestGRPCGo_HealthNeedsNoKey(t *testing.T) {
	client := healthpb.NewHealthClient(dial(t, start(t).GRPC))
	for _, service := range []string{"", "ktms.v1.GatewayService", "ktms.v1.AdminService"} {
		r, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", service, r, err)
		}
	}
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nope"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown service: %v", err)
	}
	watch, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("watch: %v, %v", r, err)
	}
}

func TestGRPCGo_ReflectionNeedsNoKey(t *testing.T) {
	s, err := reflectionpb.NewServerReflectionClient(dial(t, start(t).GRPC)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := func(req *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		if err := s.Send(req); err != nil {
			t.Fatal(err)
		}
		r, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var names []string
	for _, service := range request(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		names = append(names, service.GetName())
	}
	for _, want := range []string{"ktms.v1.GatewayService", "ktms.v1.AdminService", "ktms.v1.NodeRegistryService", "grpc.health.v1.Health"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %v", want, names)
			continue
		}
		files := request(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{
			FileContainingSymbol: want}}).GetFileDescriptorResponse().GetFileDescriptorProto()
		var file descriptorpb.FileDescriptorProto
		if len(files) == 0 || proto.Unmarshal(files[0], &file) != nil || len(file.GetService()) == 0 {
			t.Errorf("%s has no description", want)
		}
	}
	nobody := request(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "no.Such"}})
	if nobody.GetErrorResponse().GetErrorCode() != int32(codes.NotFound) {
		t.Errorf("an unknown symbol: %v", nobody)
	}
}
