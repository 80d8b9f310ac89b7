package gateway

import (
	"context"
	"strconv"
	"strings"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/status"
)

// Handler adapts a Service to the generated GatewayService. What is not built yet answers UNIMPLEMENTED.
type Handler struct {
	ktmsv1connect.UnimplementedGatewayServiceHandler
	service *Service
}

// NewHandler returns the GatewayService of a Service.
func NewHandler(service *Service) *Handler { return &Handler{service: service} }

// GenerateText implements GatewayService.
func (h *Handler) GenerateText(ctx context.Context, req *ktmsv1.GenerateTextRequest) (*ktmsv1.GenerateTextResponse, error) {
	response, head, err := h.service.Generate(ctx, req)
	if err != nil {
		return nil, refused(ctx, err)
	}
	setHeaders(ctx, head)
	return response, nil
}

// GenerateTextStream implements GatewayService.
func (h *Handler) GenerateTextStream(ctx context.Context, req *ktmsv1.GenerateTextStreamRequest, stream ktmsv1connect.GatewayServiceGenerateTextStreamServerStream) error {
	if req.GetRequest() == nil {
		return status.RPC(status.Invalid([]status.Violation{{Path: "request", Text: "is required"}}))
	}
	if err := h.service.Stream(ctx, req.GetRequest(), rpcSink{ctx, stream}); err != nil {
		return refused(ctx, err)
	}
	return nil
}

// GetEmbeddings implements GatewayService.
func (h *Handler) GetEmbeddings(ctx context.Context, req *ktmsv1.GetEmbeddingsRequest) (*ktmsv1.GetEmbeddingsResponse, error) {
	response, head, err := h.service.Embed(ctx, req)
	if err != nil {
		return nil, refused(ctx, err)
	}
	setHeaders(ctx, head)
	return response, nil
}

// ListModels implements GatewayService.
func (h *Handler) ListModels(ctx context.Context, _ *ktmsv1.ListModelsRequest) (*ktmsv1.ListModelsResponse, error) {
	return &ktmsv1.ListModelsResponse{Models: h.service.ListModels(caller.From(ctx))}, nil
}

type rpcSink struct {
	ctx    context.Context
	stream ktmsv1connect.GatewayServiceGenerateTextStreamServerStream
}

func (s rpcSink) Head(head *Head) error {
	setHeaders(s.ctx, head)
	return nil
}

func (s rpcSink) Send(chunk *ktmsv1.GenerateTextChunk) error { return s.stream.Send(chunk) }

func setHeaders(ctx context.Context, head *Head) {
	if info, ok := connect.CallInfoForServerContext(ctx); ok {
		for name, value := range head.Headers() {
			info.ResponseHeader().Set(name, value)
		}
	}
}

// refused is an error as this door sends it. Where a limit refused the call before anything was sent, headers say how far
// the caller is from it.
func refused(ctx context.Context, err error) error {
	if info, ok := connect.CallInfoForServerContext(ctx); ok {
		for name, value := range status.Headers(status.As(err).Allowances) {
			info.ResponseHeader().Set(name, value)
		}
	}
	return status.RPC(err)
}

// Headers yields the response headers that a head becomes, on every door.
func (h *Head) Headers() func(yield func(name, value string) bool) {
	return func(yield func(name, value string) bool) {
		score := ""
		if h.JudgeModel != "" {
			score = strconv.FormatFloat(h.JudgeScore, 'f', -1, 64)
		}
		for _, header := range [...]struct{ name, value string }{
			{"X-KTMS-Vendor", h.Vendor},
			{"X-KTMS-Rule", h.Rule},
			{"X-KTMS-Placement", h.Placement},
			{"X-KTMS-Route-Mode", h.Mode},
			{"X-KTMS-Judge-Score", score},
			{"X-KTMS-Judge-Model", h.JudgeModel},
			{"X-KTMS-Dropped-Params", strings.Join(h.Dropped, ",")},
		} {
			if header.value != "" && !yield(header.name, headerSafe(header.value)) {
				return
			}
		}
		status.Headers(h.Allowances)(yield)
	}
}

// headerSafe keeps a rule's name, which may hold anything, from breaking the header.
func headerSafe(value string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, value)
}
