package openai

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

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
	extra := said(wire.Extra, "service_tier", "verbosity", "reasoning_effort", "prompt_cache_key")
	d.own(req, &extra)
	if err := d.route(req, wire, &extra, header); err != nil {
		return nil, err
	}
	d.messages(req, wire.Messages)
	d.tools(req, wire)
	d.responseFormat(req, wire.ResponseFormat, &extra)
	req.ExtraJson = withoutNulls(extra).JSON()
	if len(d.found) > 0 {
		return nil, status.Invalid(d.found)
	}
	return req, nil
}

// withoutNulls leaves out members that say nothing.
func withoutNulls(members openaiapi.Members) openaiapi.Members {
	var kept openaiapi.Members
	for _, m := range members {
		if string(m.Value) != "null" {
			kept = append(kept, m)
		}
	}
	return kept
}

// said leaves out those of the named members that hold an empty text, and all that hold null: clients that write out
// every field mean nothing by them, and what is left decides whether ktms.v1 can hold the object.
func said(members openaiapi.Members, names ...string) openaiapi.Members {
	var kept openaiapi.Members
	for _, m := range withoutNulls(members) {
		if string(m.Value) != `""` || !slices.Contains(names, m.Name) {
			kept = append(kept, m)
		}
	}
	return kept
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
	req.Attributes, req.ActionId = d.attributes(extra)
	req.EnableGoogleSearch = d.flag(extra, "enable_google_search")
	req.EnableCache = d.flag(extra, "enable_cache")
}

// attributes are what metadata and user say, and the label for usage among them.
func (d *decoding) attributes(extra *openaiapi.Members) (attributes map[string]string, action string) {
	attributes = map[string]string{}
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
			attributes[m.Name] = value
		}
	}
	action, found := attributes["action_id"]
	if found {
		delete(attributes, "action_id")
	}
	if user := d.text(extra, "user"); user != "" && attributes[routing.AttrUserID] == "" {
		attributes[routing.AttrUserID] = user
	}
	return attributes, action
}

// placement is where the request may run: the header says it before the body, the body before the model's suffix.
func (d *decoding) placement(extra *openaiapi.Members, header http.Header, suffix routing.Placement) string {
	inBody := d.text(extra, "placement")
	for _, from := range []struct{ where, value string }{
		{headerPlacement, header.Get(headerPlacement)}, {"placement", inBody}, {"model", string(suffix)},
	} {
		if from.value == "" {
			continue
		}
		placement, err := routing.ParsePlacement(from.value)
		if err != nil {
			d.wrong(from.where, "%s", status.As(err).Text)
		}
		return string(placement)
	}
	return ""
}

// strict reports whether parameters that would be lost are to be refused.
func (d *decoding) strict(header http.Header) bool {
	text := header.Get(headerStrict)
	if text == "" {
		return false
	}
	strict, err := strconv.ParseBool(text)
	if err != nil {
		d.wrong(headerStrict, "expected true or false, got %q", text)
	}
	return strict
}

func (d *decoding) text(extra *openaiapi.Members, name string) string {
	return d.textAt("", extra, name)
}

// textAt is text for a member of the object at a path.
func (d *decoding) textAt(path string, extra *openaiapi.Members, name string) (text string) {
	if raw := extra.Take(name); raw != nil && json.Unmarshal(raw, &text) != nil {
		d.wrong(strings.TrimPrefix(path+"."+name, "."), "expected a string")
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
	req.Placement = d.placement(extra, header, choice.Placement)
	req.StrictParams = d.strict(header)
	for _, name := range betaHeaders {
		if value := strings.Join(header.Values(name), ","); value != "" {
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
		if tool.Function == nil || len(said(tool.Function.Extra, "description")) > 0 {
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
	if format != nil && format.JSONSchema != nil {
		format.JSONSchema.Extra = said(format.JSONSchema.Extra, "name", "description")
	}
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
