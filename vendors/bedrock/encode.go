package bedrock

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// encoded is a request on its way.
type encoded struct {
	input   *bedrockruntime.ConverseInput
	dropped []string
	// enforced: the vendor holds the answer to the whole schema.
	enforced bool
	// guardrail is the input's, as a stream wants it.
	guardrail *types.GuardrailStreamConfiguration
	// names maps the names of tools that the vendor does not take back to the caller's.
	names map[string]string
}

// stream is the same request for an answer in pieces.
func (e *encoded) stream() *bedrockruntime.ConverseStreamInput {
	in := e.input
	return &bedrockruntime.ConverseStreamInput{
		ModelId: in.ModelId, Messages: in.Messages, System: in.System, InferenceConfig: in.InferenceConfig,
		ToolConfig: in.ToolConfig, OutputConfig: in.OutputConfig, ServiceTier: in.ServiceTier, GuardrailConfig: e.guardrail,
		AdditionalModelRequestFields: in.AdditionalModelRequestFields,
	}
}

// encoder turns one request into the SDK's. It never changes the request.
type encoder struct {
	*vendors.Ledger

	target vendors.Target
	model  model
	req    *ktmsv1.GenerateTextRequest
	out    bedrockruntime.ConverseInput
	done   encoded
	// turns are the conversation so far, calls those of its calls that wait for a result, by the caller's id.
	turns []*turn
	calls map[string]*waiting
	// wireIDs and documents are the ids and names that are taken. repeats counts the rewritten ids of each of the
	// caller's, copies the documents of each name, so that what comes thousands of times is not counted from the start.
	wireIDs   map[string]bool
	repeats   map[string]int
	documents map[string]bool
	copies    map[string]int
	declared  map[string]bool // tools, by their names on the wire
	// further are model parameters that Converse has no field for.
	further openaiapi.Members
	// thinks: thinking is switched on, so that the model takes the defaults of sampling alone.
	thinks bool
	// rules are instructions of ours, at the end of the system prompt.
	rules []string
}

func encode(t vendors.Target, req *ktmsv1.GenerateTextRequest) (*encoded, *vendors.Error) {
	e := &encoder{
		Ledger: vendors.NewLedger(t.Vendor, fieldsOf(t.Model)), target: t, model: modelOf(t.Model), req: req,
		calls: map[string]*waiting{}, wireIDs: map[string]bool{}, repeats: map[string]int{}, documents: map[string]bool{},
		copies: map[string]int{}, declared: map[string]bool{},
	}
	e.out.ModelId = &t.Model
	e.instructions()
	e.conversation()
	if failed := e.Failed(); failed != nil {
		return nil, failed // the turns are not whole, and what follows reads them
	}
	e.tools()
	e.format()
	e.ceiling()
	e.thinking()
	e.sampling()
	e.extra()
	for _, rule := range e.rules {
		e.out.System = append(e.out.System, &types.SystemContentBlockMemberText{Value: rule})
	}
	e.breakpoints()
	if e.further != nil {
		e.out.AdditionalModelRequestFields = newDocument(e.further.AppendJSON(nil))
	}
	dropped, failed := e.Close(req.GetStrictParams())
	if failed != nil {
		return nil, failed
	}
	e.done.input, e.done.dropped = &e.out, dropped
	return &e.done, nil
}

// instructions come before everything else, so that vendors can cache them.
func (e *encoder) instructions() {
	if text := e.req.GetBaseSystemInstruction(); e.Carries(vendors.BaseSystemInstruction, text != "") {
		e.system(text)
	}
	if text := e.req.GetRequestInstruction(); e.Carries(vendors.RequestInstruction, text != "") {
		if len(e.req.GetMessages()) == 0 && !blank(text) {
			e.user().add(&types.ContentBlockMemberText{Value: text}) // the vendor wants a turn of the user
			return
		}
		e.system(text)
	}
}

// system adds a text to the system prompt. The vendor refuses blank ones, which say nothing.
func (e *encoder) system(text string) {
	if !blank(text) {
		e.out.System = append(e.out.System, &types.SystemContentBlockMemberText{Value: text})
	}
}

func blank(text string) bool { return strings.TrimSpace(text) == "" }

func (e *encoder) inference() *types.InferenceConfiguration {
	if e.out.InferenceConfig == nil {
		e.out.InferenceConfig = &types.InferenceConfiguration{}
	}
	return e.out.InferenceConfig
}

func (e *encoder) ceiling() {
	r := e.req
	if n := r.GetMaxOutputTokens(); e.Carries(vendors.MaxOutputTokens, n > 0) {
		if most := e.target.MaxOutputTokens; most > 0 { // more would be refused, and cannot come
			n = int32(min(int64(n), most))
		}
		e.inference().MaxTokens = &n
	}
}

func (e *encoder) sampling() {
	r, fixed := e.req, !e.model.gen.Sampling
	// Where the model has a fixed value, asking for it asks for what happens anyway.
	if e.Carries(vendors.Temperature, r.Temperature != nil && (!fixed || r.GetTemperature() != 1)) {
		if e.thinks && r.GetTemperature() != 1 {
			e.Drop(vendors.Temperature.Param())
		} else {
			e.inference().Temperature = new(float32(min(r.GetTemperature(), 1)))
		}
	}
	switch {
	case !e.Carries(vendors.TopP, r.TopP != nil && (!fixed || r.GetTopP() < 0.99)):
	case !e.thinks && (r.Temperature == nil || !e.model.gen.OneSampler):
		e.inference().TopP = new(float32(r.GetTopP()))
	case r.GetTopP() != 1: // which is the default
		e.Drop(vendors.TopP.Param())
	}
	if e.Carries(vendors.TopK, r.TopK != nil) {
		if e.thinks {
			e.Drop(vendors.TopK.Param())
		} else {
			e.topK(r.GetTopK())
		}
	}
	if e.Carries(vendors.Stop, len(r.GetStop()) > 0) {
		e.stop(r.GetStop())
	}
	e.Carries(vendors.Seed, r.Seed != nil)
	e.Carries(vendors.PresencePenalty, r.GetPresencePenalty() != 0)
	e.Carries(vendors.FrequencyPenalty, r.GetFrequencyPenalty() != 0)
	e.Carries(vendors.LogitBias, len(r.GetLogitBias()) > 0)
	e.Carries(vendors.Logprobs, r.GetLogprobs())
	e.Carries(vendors.TopLogprobs, r.GetTopLogprobs() > 0)
	e.Carries(vendors.N, r.GetN() > 1)
	e.Carries(vendors.ParallelToolCalls, r.ParallelToolCalls != nil && !r.GetParallelToolCalls())
	e.Carries(vendors.Verbosity, r.GetVerbosity() != "")
	e.Carries(vendors.PromptCacheKey, r.GetPromptCacheKey() != "")
	e.Carries(vendors.EnableGoogleSearch, r.GetEnableGoogleSearch())
	e.Carries(vendors.BetaHeaders, len(r.GetBetaHeaders()) > 0)
	if tier := r.GetServiceTier(); e.Carries(vendors.ServiceTier, tier != "") {
		if tier == "auto" {
			tier = string(types.ServiceTierTypeDefault)
		}
		if !slices.Contains(types.ServiceTierType("").Values(), types.ServiceTierType(tier)) {
			e.Drop(vendors.ServiceTier.Param())
		} else {
			e.out.ServiceTier = &types.ServiceTier{Type: types.ServiceTierType(tier)}
		}
	}
}

// topK goes where each family looks for it.
func (e *encoder) topK(k int32) {
	if e.model.nova {
		e.further.Add("inferenceConfig", fmt.Appendf(nil, `{"topK":%d}`, k))
		return
	}
	e.further.Add("top_k", fmt.Appendf(nil, "%d", k))
}

// stop leaves out what the vendor refuses: empty texts, and blank ones for Claude.
func (e *encoder) stop(texts []string) {
	var kept []string
	for _, text := range texts {
		if text == "" || e.model.claude && blank(text) {
			e.Drop(vendors.Stop.Param())
			continue
		}
		kept = append(kept, text)
	}
	if kept != nil {
		e.inference().StopSequences = kept
	}
}

func (e *encoder) output() *types.OutputConfig {
	if e.out.OutputConfig == nil {
		e.out.OutputConfig = &types.OutputConfig{}
	}
	return e.out.OutputConfig
}

// extra reports the members of a request that no field stands for. The vendor's guardrails and the settings of Claude's
// thinking are carried.
func (e *encoder) extra() {
	for _, m := range e.members("extra_json", e.req.GetExtraJson()) {
		switch {
		case string(m.Value) == "null": // says nothing
		case m.Name == "thinking" && e.model.claude: // done
		case m.Name == "guardrailConfig":
			e.guardrail(m.Value)
		default:
			e.Drop(m.Name)
		}
	}
}

// guardrail reads the settings of a guardrail as the vendor spells them.
func (e *encoder) guardrail(text json.RawMessage) {
	var wire struct {
		Identifier *string                             `json:"guardrailIdentifier"`
		Version    *string                             `json:"guardrailVersion"`
		Trace      types.GuardrailTrace                `json:"trace"`
		Mode       types.GuardrailStreamProcessingMode `json:"streamProcessingMode"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&wire); err != nil {
		e.Wrong("guardrailConfig", "takes guardrailIdentifier, guardrailVersion, trace and streamProcessingMode")
		return
	}
	e.out.GuardrailConfig = &types.GuardrailConfiguration{GuardrailIdentifier: wire.Identifier, GuardrailVersion: wire.Version, Trace: wire.Trace}
	e.done.guardrail = &types.GuardrailStreamConfiguration{
		GuardrailIdentifier: wire.Identifier, GuardrailVersion: wire.Version, Trace: wire.Trace, StreamProcessingMode: wire.Mode,
	}
}

// members reads an object that a caller wrote; no text is no members.
func (e *encoder) members(param, text string) openaiapi.Members {
	if text == "" {
		return nil
	}
	members, err := openaiapi.ParseMembers([]byte(text))
	if err != nil {
		e.Wrong(param, "is not a JSON object")
	}
	return members
}
