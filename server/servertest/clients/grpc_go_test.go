package clients

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

const (
	generate = "/ktms.v1.GatewayService/GenerateText"
	stream   = "/ktms.v1.GatewayService/GenerateTextStream"
)

func dial(t *testing.T, w *world) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(w.GRPC, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func as(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key)
}

var low = &ktmsv1.GenerateTextRequest{Effort: ktmsv1.Effort_EFFORT_LOW,
	Messages: []*ktmsv1.Message{{Role: ktmsv1.MessageRole_MESSAGE_ROLE_USER, Text: "hi"}}}

func TestGRPCGo(t *testing.T) {
	w := start(t)
	conn := dial(t, w)
	ctx := as(t.Context(), w.key)

	var response ktmsv1.GenerateTextResponse
	var header metadata.MD
	if err := conn.Invoke(ctx, generate, low, &response, grpc.Header(&header)); err != nil || response.GetChoices()[0].GetText() != "Hello from upstream." {
		t.Errorf("unary: %v, %v", &response, err)
	}
	if len(header.Get("x-ktms-request-id")) != 1 || !slices.Equal(header.Get("x-ktms-rule"), []string{"all"}) {
		t.Errorf("header: %v", header)
	}

	open, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(open.SendMsg(&ktmsv1.GenerateTextStreamRequest{Request: low}), open.CloseSend()); err != nil {
		t.Fatal(err)
	}
	text := ""
	for {
		var chunk ktmsv1.GenerateTextChunk
		if err = open.RecvMsg(&chunk); err != nil {
			break
		}
		text += chunk.GetDelta()
	}
	if !errors.Is(err, io.EOF) || text != "Hello from upstream." {
		t.Errorf("stream: %q, %v", text, err)
	}

	err = conn.Invoke(ctx, generate, &ktmsv1.GenerateTextRequest{ModelOverride: "nope", Messages: low.GetMessages()}, &response)
	failed := status.Convert(err)
	reason := ""
	for _, detail := range failed.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			reason = info.GetReason()
		}
	}
	if failed.Code() != codes.NotFound || reason != "model_not_found" {
		t.Errorf("an error with details: %v, %q", err, reason)
	}
	if err := conn.Invoke(as(t.Context(), "ktms_wrong"), generate, low, &response); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a wrong key: %v", err)
	}
}

func TestGRPCGo_HealthAndReflectionNeedNoKey(t *testing.T) {
	conn := dial(t, start(t))
	health, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "ktms.v1.AdminService"})
	if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", health, err)
	}
	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if health, err := watch.Recv(); err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("watch: %v, %v", health, err)
	}
	reflection, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := reflection.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	answer, err := reflection.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, service := range answer.GetListServicesResponse().GetService() {
		names = append(names, service.GetName())
	}
	for _, want := range []string{"ktms.v1.GatewayService", "ktms.v1.AdminService", "ktms.v1.NodeRegistryService"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %v", want, names)
		}
	}
}
