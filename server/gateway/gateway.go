// Package gateway is the data plane: it answers GatewayService calls and, through the same methods, the
// OpenAI-compatible door.
package gateway

import (
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/dispatch"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// Options is what a Service needs.
type Options struct {
	// Table returns the configuration of this instant.
	Table func() *routing.Table
	// View returns the state of breakers and pauses.
	View       routing.View
	Dispatcher *dispatch.Dispatcher
	Admission  *admit.Controller
	// Vendors maps a vendor's name to the dialect that speaks to it.
	Vendors   map[string]vendors.Vendor
	Validator *status.Validator
	Log       *slog.Logger
}

// Service answers. It is safe for concurrent use.
type Service struct {
	options Options
	schemas schemas
}

// New returns a Service.
func New(options Options) *Service { return &Service{options: options} }

// ListModels returns the models that the caller can use, by id, without where they are: endpoints are the operator's.
func (s *Service) ListModels(c *caller.Caller) []*ktmsv1.ModelSpec {
	var models []*ktmsv1.ModelSpec
	for _, m := range s.options.Table().Models(c) {
		if !s.options.View.Speaks(m.GetVendor()) {
			continue
		}
		if m.GetEndpoint() != "" {
			m = proto.CloneOf(m)
			m.Endpoint = ""
		}
		models = append(models, m)
	}
	return models
}

// ModelFields is how a model's dialect carries each request field.
type ModelFields struct {
	Spec   *ktmsv1.ModelSpec
	Fields vendors.Table
}

// Capabilities returns, for the models that the caller can use, what becomes of each field of a text request. Models that
// embed take none.
func (s *Service) Capabilities(c *caller.Caller) []ModelFields {
	models := s.ListModels(c)
	all := make([]ModelFields, 0, len(models))
	for _, m := range models {
		out := ModelFields{Spec: m}
		if vendor, ok := s.options.Vendors[m.GetVendor()]; ok && !slices.Contains(m.GetCapabilities(), capabilityEmbedding) {
			out.Fields = vendor.Fields(m.GetVendor(), m.GetId())
			if admit.Priced(m) && out.Fields.Carries(vendors.ServiceTier) {
				out.Fields = out.Fields.With(vendors.Table{vendors.ServiceTier: {How: vendors.Translated,
					Note: "tiers at regular prices; others are dropped, since the catalogue has no price for them"}})
			}
		}
		all = append(all, out)
	}
	return all
}

// Head is what a stream says once, together with its first content: what becomes headers.
type Head struct {
	RequestID  string
	Model      string
	Vendor     string
	Rule       string
	Mode       string
	Placement  string
	JudgeScore float64
	JudgeModel string
	Dropped    []string
	// Allowances are how far the caller is from its rates.
	Allowances []status.Allowance
}

// Sink takes a stream. Head comes once, before the first Send. An error from either ends the stream: the caller left.
type Sink interface {
	Head(head *Head) error
	Send(chunk *ktmsv1.GenerateTextChunk) error
}

// headOf returns the head of an answer that was not streamed.
func (c *call) headOf(r *ktmsv1.GenerateTextResponse) *Head {
	return &Head{RequestID: r.GetRequestId(), Model: r.GetResolvedModel(), Vendor: r.GetResolvedVendor(),
		Rule: r.GetMatchedRule(), Mode: r.GetRouteMode(), Placement: r.GetPlacement(), JudgeScore: r.GetJudgeScore(),
		JudgeModel: r.GetJudgeModel(), Dropped: r.GetDroppedParams(), Allowances: c.account.Allowances()}
}

// query is what routing needs of a text request.
func query(req *ktmsv1.GenerateTextRequest) (routing.Query, error) {
	placement, err := routing.ParsePlacement(req.GetPlacement())
	if err != nil {
		return routing.Query{}, err
	}
	q := routing.Query{
		Model: req.GetModelOverride(), Effort: req.GetEffort(),
		Attributes: req.GetAttributes(), Placement: placement, Needs: needs(req), Draw: rand.Float64(),
	}
	q.Choose(req.GetAutoRoute(), req.GetEffortSpecified())
	return q, nil
}

// needs lists the capabilities that a model must declare to serve the request.
func needs(req *ktmsv1.GenerateTextRequest) []string {
	var vision, audio, pdf bool
	for _, m := range req.GetMessages() {
		for _, part := range m.GetParts() {
			switch kind := part.GetPart().(type) {
			case *ktmsv1.ContentPart_Image:
				vision = true
			case *ktmsv1.ContentPart_Audio:
				audio = true
			case *ktmsv1.ContentPart_Document:
				pdf = true
			case *ktmsv1.ContentPart_RawJson:
				switch rawType(kind.RawJson) {
				case "image_url":
					vision = true
				case "input_audio":
					audio = true
				case "file":
					pdf = true
				}
			}
		}
	}
	var out []string
	for _, need := range []struct {
		is   bool
		name string
	}{{vision, "vision"}, {audio, "audio_input"}, {pdf, "pdf_input"}, {req.GetEnableGoogleSearch(), "google_search"}} {
		if need.is {
			out = append(out, need.name)
		}
	}
	return out
}

// rawType is the type of a part that travels raw.
func rawType(raw string) (kind string) {
	members, err := openaiapi.ParseMembers([]byte(raw))
	if err == nil {
		_ = json.Unmarshal(members.Get("type"), &kind) // no type is no need
	}
	return kind
}

// vendorOf returns the dialect for a candidate.
func (s *Service) vendorOf(c *routing.Candidate) (vendors.Vendor, error) {
	if v, found := s.options.Vendors[c.Target.Vendor]; found {
		return v, nil
	}
	return nil, &vendors.Error{Kind: vendors.Denied, Vendor: c.Target.Vendor, Message: "this release does not speak to this vendor"}
}

// record writes the one line that every call leaves. It holds neither prompt nor secret.
func (s *Service) record(call *call, err error) {
	attrs := []slog.Attr{
		slog.String("request_id", call.id), slog.String("key", call.caller.KeyName), slog.String("rule", call.rule()),
		slog.String("model", call.outcome.Model), slog.String("vendor", call.outcome.Vendor),
		slog.Int("attempts", call.outcome.Attempts), slog.Bool("stream", call.stream),
		slog.Float64("seconds", time.Since(call.started).Seconds()),
	}
	if call.node != "" {
		attrs = append(attrs, slog.String("node", call.node))
	}
	if call.action != "" {
		attrs = append(attrs, slog.String("action_id", call.action))
	}
	if u := call.outcome.Usage; u != nil {
		attrs = append(attrs, slog.Int64("input_tokens", u.GetInput()), slog.Int64("output_tokens", u.GetOutput()),
			slog.Int64("cost_nanousd", u.GetCostNanousd()))
		if u.GetEstimated() {
			attrs = append(attrs, slog.Bool("estimated", true))
		}
	}
	if call.account.Unmetered() {
		attrs = append(attrs, slog.Bool("unmetered", true))
	}
	if call.outcome.MaybeBilled {
		attrs = append(attrs, slog.Bool("maybe_billed", true))
	}
	level := slog.LevelInfo
	if err != nil {
		e := status.As(err)
		attrs = append(attrs, slog.String("reason", string(e.Reason)))
		if e.Reason == status.Internal {
			level = slog.LevelError
			attrs = append(attrs, slog.Any("error", err))
		}
	}
	s.options.Log.LogAttrs(call.ctx, level, "call", attrs...)
}
