package openai

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// decoding collects what is wrong with a request, so that all of it is said at once.
type decoding struct {
	found []status.Violation
}

func (d *decoding) wrong(path, format string, args ...any) {
	d.found = append(d.found, status.Violation{Path: path, Text: fmt.Sprintf(format, args...)})
}

// decode translates a chat request. Members that have a meaning for Keystone alone (metadata, user, placement, …) are
// taken out; those that it does not know travel on to the vendor.
func decode(wire *openaiapi.ChatRequest, header http.Header) (*ktmsv1.GenerateTextRequest, error) {
	d := &decoding{}
	req := &ktmsv1.GenerateTextRequest{
		Temperature: wire.Temperature, TopP: wire.TopP, TopK: d.int32("top_k", wire.TopK),
		PresencePenalty: wire.PresencePenalty, FrequencyPenalty: wire.FrequencyPenalty, Seed: wire.Seed,
		Logprobs: wire.Logprobs, TopLogprobs: d.int32("top_logprobs", wire.TopLogprobs), N: d.int32("n", wire.N),
		ParallelToolCalls: wire.ParallelToolCalls, Verbosity: wire.Verbosity, ServiceTier: wire.ServiceTier,
		PromptCacheKey: wire.PromptCacheKey,
	}
	ceiling := wire.MaxCompletionTokens
	if ceiling == nil {
		ceiling = wire.MaxTokens
	}
	if tokens := d.int32("max_tokens", ceiling); tokens != nil {
		if *tokens == 0 {
			d.wrong("max_tokens", "must be at least 1")
		}
		req.MaxOutputTokens = *tokens
	}
	if wire.Stop != nil {
		req.Stop = wire.Stop.Strings
	}
	if len(wire.LogitBias) > 0 {
		req.LogitBias = make(map[string]float64, len(wire.LogitBias))
		for _, b := range wire.LogitBias {
			req.LogitBias[b.Token] = b.Bias
		}
	}
	extra := wire.Extra
	d.own(req, &extra)
	if err := d.route(req, wire, &extra, header); err != nil {
		return nil, err
	}
	d.messages(req, wire.Messages)
	d.tools(req, wire)
	d.responseFormat(req, wire.ResponseFormat, &extra)
	req.ExtraJson = extra.JSON()
	if len(d.found) > 0 {
		return nil, status.Invalid(d.found)
	}
	return req, nil
}

// int32 narrows a number that the contract holds in 32 bits.
func (d *decoding) int32(path string, value *int64) *int32 {
	if value == nil {
		return nil
	}
	if *value < math.MinInt32 || *value > math.MaxInt32 {
		d.wrong(path, "is out of range")
		return nil
	}
	return new(int32(*value))
}

// own takes out the members that Keystone itself acts on.
func (d *decoding) own(req *ktmsv1.GenerateTextRequest, extra *openaiapi.Members) {
	req.Attributes = map[string]string{}
	if raw := extra.Take("metadata"); raw != nil && string(raw) != "null" {
		members, err := openaiapi.ParseMembers(raw)
		if err != nil {
			d.wrong("metadata", "expected an object of strings")
		}
		for _, m := range members {
			var value string
			if json.Unmarshal(m.Value, &value) != nil {
				d.wrong("metadata["+m.Name+"]", "expected a string")
			}
			req.Attributes[m.Name] = value
		}
	}
	if action, found := req.Attributes["action_id"]; found {
		req.ActionId = action
		delete(req.Attributes, "action_id")
	}
	if user := d.text(extra, "user"); user != "" && req.Attributes[routing.AttrUserID] == "" {
		req.Attributes[routing.AttrUserID] = user
	}
	req.EnableGoogleSearch = d.flag(extra, "enable_google_search")
	req.EnableCache = d.flag(extra, "enable_cache")
}

func (d *decoding) text(extra *openaiapi.Members, name string) (text string) {
	if raw := extra.Take(name); raw != nil && json.Unmarshal(raw, &text) != nil {
		d.wrong(name, "expected a string")
	}
	return text
}

func (d *decoding) flag(extra *openaiapi.Members, name string) (flag bool) {
	if raw := extra.Take(name); raw != nil && json.Unmarshal(raw, &flag) != nil {
		d.wrong(name, "expected true or false")
	}
	return flag
}

// route reads where the request wants to go: header before body before the model's suffix.
func (d *decoding) route(req *ktmsv1.GenerateTextRequest, wire *openaiapi.ChatRequest, extra *openaiapi.Members, header http.Header) error {
	choice, err := routing.ParseModel(wire.Model)
	if err != nil {
		return err
	}
	inBody := d.text(extra, "placement")
	for _, from := range []struct{ where, value string }{
		{headerPlacement, header.Get(headerPlacement)}, {"placement", inBody}, {"model", string(choice.Placement)},
	} {
		if from.value == "" {
			continue
		}
		placement, err := routing.ParsePlacement(from.value)
		if err != nil {
			d.wrong(from.where, "%s", status.As(err).Text)
		}
		req.Placement = string(placement)
		break
	}
	req.StrictParams = header.Get(headerStrict) == "true"
	for _, name := range betaHeaders {
		if value := header.Get(name); value != "" {
			if req.BetaHeaders == nil {
				req.BetaHeaders = map[string]string{}
			}
			req.BetaHeaders[name] = value
		}
	}

	if choice.Exact != "" {
		req.ModelOverride = choice.Exact
		req.ReasoningEffort = wire.ReasoningEffort
		return nil
	}
	req.AutoRoute = true
	req.Effort = choice.Effort
	if req.Effort == ktmsv1.Effort_EFFORT_UNSPECIFIED && wire.ReasoningEffort != "" {
		if req.Effort, err = routing.ParseEffort(wire.ReasoningEffort); err != nil {
			d.wrong("reasoning_effort", "%s", status.As(err).Text)
		}
	}
	req.EffortSpecified = req.Effort != ktmsv1.Effort_EFFORT_UNSPECIFIED
	return nil
}

func (d *decoding) tools(req *ktmsv1.GenerateTextRequest, wire *openaiapi.ChatRequest) {
	for i := range wire.Tools {
		tool := &wire.Tools[i]
		if tool.Function == nil || len(tool.Function.Extra) > 0 {
			req.Tools = append(req.Tools, rawTool(tool))
			continue
		}
		f := tool.Function
		req.Tools = append(req.Tools, &ktmsv1.Tool{Name: f.Name, Description: f.Description,
			ParametersJson: string(f.Parameters), Strict: f.Strict, ExtraJson: tool.Extra.JSON()})
	}
	choice := wire.ToolChoice
	if choice == nil {
		return
	}
	req.ToolChoice = &ktmsv1.ToolChoice{}
	switch {
	case choice.Function != "":
		req.ToolChoice.Mode = ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION
		req.ToolChoice.FunctionName = choice.Function
	case choice.Mode == "auto":
		req.ToolChoice.Mode = ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO
	case choice.Mode == "none":
		req.ToolChoice.Mode = ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE
	case choice.Mode == "required":
		req.ToolChoice.Mode = ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED
	default:
		req.ToolChoice.RawJson = choice.JSON()
	}
}

// rawTool keeps a tool that ktms.v1 has no fields for as it is. Its name is kept too, for what reads names.
func rawTool(tool *openaiapi.Tool) *ktmsv1.Tool {
	out := &ktmsv1.Tool{RawJson: tool.JSON()}
	if tool.Function != nil {
		out.Name, out.Strict = tool.Function.Name, tool.Function.Strict
	}
	return out
}

func (d *decoding) responseFormat(req *ktmsv1.GenerateTextRequest, format *openaiapi.ResponseFormat, extra *openaiapi.Members) {
	switch {
	case format == nil, format.Type == "text" && len(format.Extra) == 0:
	case format.Type == "json_object" && len(format.Extra) == 0:
		req.JsonObject = true
	case format.Type == "json_schema" && format.JSONSchema == nil:
		d.wrong("response_format.json_schema", "is required with type json_schema")
	case format.Type == "json_schema" && len(format.Extra) == 0 && len(format.JSONSchema.Extra) == 0 && len(format.JSONSchema.Schema) > 0:
		s := format.JSONSchema
		req.ResponseSchemaJson, req.ResponseSchemaName = string(s.Schema), s.Name
		req.ResponseSchemaDescription, req.ResponseSchemaStrict = s.Description, s.Strict
	default:
		extra.Add("response_format", json.RawMessage(format.JSON()))
	}
}
