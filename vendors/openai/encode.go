package openai

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// encoded is a request on its way.
type encoded struct {
	body []byte
	// dropped are the request fields that the dialect cannot carry.
	dropped []string
	// unheard are those that Ollama ignores, if it is Ollama that answers.
	unheard []string
}

// encoder turns one request into the wire's. It never changes the request.
type encoder struct {
	*dialect
	target  vendors.Target
	req     *ktmsv1.GenerateTextRequest
	extra   openaiapi.Members // of the request
	out     openaiapi.ChatRequest
	dropped []string
	unheard []string
	err     *vendors.Error
}

func encode(t vendors.Target, req *ktmsv1.GenerateTextRequest, stream bool) (*encoded, *vendors.Error) {
	e := &encoder{dialect: dialectOf(t.Vendor), target: t, req: req}
	e.out.Model = t.Model
	e.extra = e.object("extra_json", req.GetExtraJson())
	e.messages()
	e.sampling()
	e.responseFormat()
	e.tools()
	e.thinking()
	body := e.finish(stream)
	if e.err == nil && req.GetStrictParams() && len(e.dropped) > 0 {
		e.err = refusedParam(t.Vendor, e.dropped[0])
	}
	if e.err != nil {
		return nil, e.err
	}
	return &encoded{body: body, dropped: e.dropped, unheard: e.unheard}, nil
}

// refusedParam is the answer to a strict request with a parameter that would be lost.
func refusedParam(vendor, param string) *vendors.Error {
	return &vendors.Error{Kind: vendors.Invalid, Vendor: vendor, Param: param, Message: param + " cannot be carried to this vendor"}
}

// sizeHint spares the growing of the body's buffer, mostly.
func sizeHint(req *ktmsv1.GenerateTextRequest) int {
	size := 1024 + len(req.GetBaseSystemInstruction()) + len(req.GetRequestInstruction())
	for _, m := range req.GetMessages() {
		size += 128 + len(m.GetText())
		for _, p := range m.GetParts() {
			size += 64 + len(p.GetText()) + len(p.GetImage().GetUrl()) + 4*len(p.GetImage().GetData())/3 +
				4*len(p.GetAudio().GetData())/3 + 4*len(p.GetDocument().GetData())/3
		}
	}
	for _, t := range req.GetTools() {
		size += 128 + len(t.GetDescription()) + len(t.GetParametersJson())
	}
	return size + size/16
}

// carries decides on a request field that was asked for. One that the dialect cannot carry is reported as dropped,
// unless it asks for what happens anyway (n: 1).
func (e *encoder) carries(member string, asked, anyway bool) bool {
	if !asked {
		return false
	}
	if !e.takes(member) {
		if !anyway {
			e.drop(member)
		}
		return false
	}
	if !anyway && slices.Contains(e.dialect.unheard, member) {
		e.unheard = append(e.unheard, member)
	}
	return true
}

func (e *encoder) drop(member string) {
	if !slices.Contains(e.dropped, member) {
		e.dropped = append(e.dropped, member)
	}
}

// fail notes the first mistake of the request.
func (e *encoder) fail(param, text string) {
	if e.err == nil {
		e.err = &vendors.Error{Kind: vendors.Invalid, Vendor: e.target.Vendor, Param: param, Message: param + ": " + text}
	}
}

// raw checks text that goes into the body as it is: anything but one JSON value could smuggle members past the checks.
func (e *encoder) raw(param, text string) json.RawMessage {
	if !json.Valid([]byte(text)) {
		e.fail(param, "is not JSON")
		return json.RawMessage("null")
	}
	return json.RawMessage(text)
}

// object is raw for the members of an object; no text is no members.
func (e *encoder) object(param, text string) openaiapi.Members {
	if text == "" {
		return nil
	}
	members, err := openaiapi.ParseMembers([]byte(text))
	if err != nil {
		e.fail(param, "is not a JSON object")
	}
	return members
}

// rawObject is raw for an object.
func (e *encoder) rawObject(param, text string) json.RawMessage {
	e.object(param, text)
	return e.raw(param, text)
}

func (e *encoder) sampling() {
	r, out := e.req, &e.out
	if r.GetMaxOutputTokens() > 0 {
		ceiling := new(int64(r.GetMaxOutputTokens()))
		if e.maxTokens == newMaxTokens {
			out.MaxCompletionTokens = ceiling
		} else {
			out.MaxTokens = ceiling
		}
	}
	if e.carries("temperature", r.Temperature != nil, false) {
		out.Temperature = r.Temperature
	}
	if e.carries("top_p", r.TopP != nil, false) {
		out.TopP = r.TopP
	}
	if e.carries("top_k", r.TopK != nil, false) {
		out.TopK = new(int64(r.GetTopK()))
	}
	if e.carries("presence_penalty", r.PresencePenalty != nil, r.GetPresencePenalty() == 0) {
		out.PresencePenalty = r.PresencePenalty
	}
	if e.carries("frequency_penalty", r.FrequencyPenalty != nil, r.GetFrequencyPenalty() == 0) {
		out.FrequencyPenalty = r.FrequencyPenalty
	}
	if e.carries("stop", len(r.GetStop()) > 0, false) {
		out.Stop = &openaiapi.Stop{Strings: r.GetStop()}
	}
	if e.carries("seed", r.Seed != nil, false) {
		if e.seed == "" {
			out.Seed = r.Seed
		} else {
			out.Extra.Add(e.seed, fmt.Appendf(nil, "%d", r.GetSeed()))
		}
	}
	if e.carries("logit_bias", len(r.GetLogitBias()) > 0, false) {
		for _, token := range slices.Sorted(maps.Keys(r.GetLogitBias())) {
			out.LogitBias = append(out.LogitBias, openaiapi.TokenBias{Token: token, Bias: r.GetLogitBias()[token]})
		}
	}
	if e.carries("logprobs", r.Logprobs != nil, !r.GetLogprobs()) {
		out.Logprobs = r.Logprobs
	}
	if e.carries("top_logprobs", r.TopLogprobs != nil, r.GetTopLogprobs() == 0) {
		out.TopLogprobs = new(int64(r.GetTopLogprobs()))
	}
	if e.carries("n", r.N != nil, r.GetN() == 1) {
		out.N = new(int64(r.GetN()))
	}
	if e.carries("parallel_tool_calls", r.ParallelToolCalls != nil, r.GetParallelToolCalls()) {
		out.ParallelToolCalls = r.ParallelToolCalls
	}
	if e.carries("verbosity", r.GetVerbosity() != "", false) {
		out.Verbosity = r.GetVerbosity()
	}
	if e.carries("service_tier", r.GetServiceTier() != "", false) {
		out.ServiceTier = r.GetServiceTier()
	}
	if e.carries("prompt_cache_key", r.GetPromptCacheKey() != "", false) {
		out.PromptCacheKey = r.GetPromptCacheKey()
	}
}

// thinking forwards the effort as it was asked for. Without one, models that declare no_thinking get it switched off:
// they reason by default and bill the reasoning as output.
func (e *encoder) thinking() {
	effort := e.req.GetReasoningEffort()
	if effort == "" && e.canDisable && slices.Contains(e.target.Capabilities, "no_thinking") &&
		e.extra.Get("thinking") == nil && e.extra.Get("reasoning_effort") == nil {
		effort = "none"
	}
	switch {
	case effort == "none" && e.thinkingMember:
		e.out.Extra.Add("thinking", json.RawMessage(`{"type":"disabled"}`))
	case e.carries("reasoning_effort", effort != "", false):
		e.out.ReasoningEffort = effort
	}
}

// reserved are the request members that extra_json must not set: they decide what is called, what it may cost, and how the
// answer comes back.
var reserved = []string{"model", "messages", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens"}

// finish adds what concerns the answer as a whole, then the members of extra_json, and writes the body.
func (e *encoder) finish(stream bool) []byte {
	if e.req.GetEnableGoogleSearch() {
		e.drop("enable_google_search")
	}
	if stream {
		e.out.Stream = new(true)
		if !e.usageUnasked {
			e.out.StreamOptions = &openaiapi.StreamOptions{IncludeUsage: new(true)}
		}
	}
	if options := e.extra.Take("stream_options"); options != nil && string(options) != "null" {
		e.streamOptions(string(options))
	}
	body := e.out.AppendJSON(make([]byte, 0, sizeHint(e.req)))
	var kept openaiapi.Members
	for _, m := range e.without(e.extra, body, reserved...) {
		if !e.takes(m.Name) {
			e.drop(m.Name)
			continue
		}
		if slices.Contains(e.dialect.unheard, m.Name) {
			e.unheard = append(e.unheard, m.Name)
		}
		kept = append(kept, m)
	}
	if kept == nil {
		return body
	}
	body[len(body)-1] = ','
	return append(body, kept.AppendJSON(nil)[1:]...)
}

// streamOptions adds what a caller wants of a stream beside the usage, which is asked for anyway.
func (e *encoder) streamOptions(text string) {
	if e.out.StreamOptions == nil {
		e.drop("stream_options")
		return
	}
	for _, option := range e.object("extra_json", text) {
		if !strings.EqualFold(option.Name, "include_usage") {
			e.out.StreamOptions.Extra.Add(option.Name, option.Value)
		}
	}
}

// without leaves out the members that an object has already, or that are reserved, and reports them. Names are compared
// without regard to case, as some servers do (Ollama): "Model" must not win over "model".
func (e *encoder) without(members openaiapi.Members, object []byte, reserved ...string) openaiapi.Members {
	if len(members) == 0 {
		return nil
	}
	written, err := openaiapi.ParseMembers(object)
	if err != nil { // raw JSON that was refused already
		return nil
	}
	reserved = slices.Clip(reserved) // the caller's stays as it is
	for _, m := range written {
		reserved = append(reserved, m.Name)
	}
	var kept openaiapi.Members
	for _, m := range members {
		if isOneOf(m.Name, reserved) {
			e.drop(m.Name)
		} else {
			kept = append(kept, m)
		}
	}
	return kept
}

func isOneOf(name string, names []string) bool {
	return slices.ContainsFunc(names, func(other string) bool { return strings.EqualFold(name, other) })
}
