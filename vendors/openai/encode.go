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
	// enforced: the vendor holds the answer to its schema.
	enforced bool
	// beta is the value of OpenAI-Beta.
	beta string
}

// encoder turns one request into the wire's. It never changes the request.
type encoder struct {
	*dialect
	*vendors.Ledger
	table    vendors.Table
	target   vendors.Target
	req      *ktmsv1.GenerateTextRequest
	extra    openaiapi.Members // of the request
	out      openaiapi.ChatRequest
	unheard  []string
	enforced bool
}

func encode(t vendors.Target, req *ktmsv1.GenerateTextRequest, stream bool) (*encoded, *vendors.Error) {
	table := tableOf(t.Vendor)
	e := &encoder{dialect: dialectOf(t.Vendor), Ledger: vendors.NewLedger(t.Vendor, table), table: table, target: t, req: req}
	e.out.Model = t.Model
	e.extra = e.object("extra_json", req.GetExtraJson())
	e.messages()
	e.sampling()
	e.responseFormat()
	e.tools()
	e.thinking()
	beta := e.beta()
	body := e.finish(stream)
	dropped, failed := e.Close(req.GetStrictParams())
	if failed != nil {
		return nil, failed
	}
	return &encoded{body: body, dropped: dropped, unheard: e.unheard, enforced: e.enforced, beta: beta}, nil
}

// refusedParam is the answer to a strict request with a parameter that would be lost.
func refusedParam(vendor, param string) *vendors.Error {
	l := vendors.NewLedger(vendor, nil)
	l.Refuse(param, "")
	return l.Failed()
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

// carries is Carries for a field that may ask for what happens anyway (n: 1): that is sent where it can be, and missed
// by nobody where it cannot.
func (e *encoder) carries(f vendors.Field, asked, anyway bool) bool {
	if anyway && !e.table.Carries(f) || !e.Carries(f, asked) {
		return false
	}
	if !anyway && e.ollama && slices.Contains(ollamaIgnores, f) {
		e.unheard = append(e.unheard, f.Param())
	}
	return true
}

// raw checks text that goes into the body as it is: anything but one JSON value could smuggle members past the checks.
func (e *encoder) raw(param, text string) json.RawMessage {
	if !json.Valid([]byte(text)) {
		e.Wrong(param, "is not JSON")
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
		e.Wrong(param, "is not a JSON object")
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
	if e.carries(vendors.MaxOutputTokens, r.GetMaxOutputTokens() > 0, false) {
		ceiling := new(int64(r.GetMaxOutputTokens()))
		if e.newMaxTokens {
			out.MaxCompletionTokens = ceiling
		} else {
			out.MaxTokens = ceiling
		}
	}
	if e.carries(vendors.Temperature, r.Temperature != nil, false) {
		out.Temperature = r.Temperature
	}
	if e.carries(vendors.TopP, r.TopP != nil, false) {
		out.TopP = r.TopP
	}
	if e.carries(vendors.TopK, r.TopK != nil, false) {
		out.TopK = new(int64(r.GetTopK()))
	}
	if e.carries(vendors.PresencePenalty, r.PresencePenalty != nil, r.GetPresencePenalty() == 0) {
		out.PresencePenalty = r.PresencePenalty
	}
	if e.carries(vendors.FrequencyPenalty, r.FrequencyPenalty != nil, r.GetFrequencyPenalty() == 0) {
		out.FrequencyPenalty = r.FrequencyPenalty
	}
	if e.carries(vendors.Stop, len(r.GetStop()) > 0, false) {
		out.Stop = &openaiapi.Stop{Strings: r.GetStop()}
	}
	if e.carries(vendors.Seed, r.Seed != nil, false) {
		if e.seed == "" {
			out.Seed = r.Seed
		} else {
			out.Extra.Add(e.seed, fmt.Appendf(nil, "%d", r.GetSeed()))
		}
	}
	if e.carries(vendors.LogitBias, len(r.GetLogitBias()) > 0, false) {
		for _, token := range slices.Sorted(maps.Keys(r.GetLogitBias())) {
			out.LogitBias = append(out.LogitBias, openaiapi.TokenBias{Token: token, Bias: r.GetLogitBias()[token]})
		}
	}
	if e.carries(vendors.Logprobs, r.Logprobs != nil, !r.GetLogprobs()) {
		out.Logprobs = r.Logprobs
	}
	if e.carries(vendors.TopLogprobs, r.TopLogprobs != nil, r.GetTopLogprobs() == 0) {
		out.TopLogprobs = new(int64(r.GetTopLogprobs()))
	}
	if e.carries(vendors.N, r.N != nil, r.GetN() == 1) {
		out.N = new(int64(r.GetN()))
	}
	if e.carries(vendors.ParallelToolCalls, r.ParallelToolCalls != nil, r.GetParallelToolCalls()) {
		out.ParallelToolCalls = r.ParallelToolCalls
	}
	if e.carries(vendors.Verbosity, r.GetVerbosity() != "", false) {
		out.Verbosity = r.GetVerbosity()
	}
	if e.carries(vendors.ServiceTier, r.GetServiceTier() != "", false) {
		out.ServiceTier = r.GetServiceTier()
	}
	if e.carries(vendors.PromptCacheKey, r.GetPromptCacheKey() != "", false) {
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
	case e.carries(vendors.ReasoningEffort, effort != "", false):
		e.out.ReasoningEffort = effort
	}
}

// beta is what the caller wants in OpenAI-Beta.
func (e *encoder) beta() string {
	own := ""
	for name, value := range e.req.GetBetaHeaders() {
		if !e.table.Carries(vendors.BetaHeaders) || name != betaHeader {
			e.Drop(vendors.BetaHeaders.Param())
			continue
		}
		own = value
	}
	return own
}

// betaHeader is the one header of the caller that travels on.
const betaHeader = "openai-beta"

// reserved are the request members that extra_json must not set: they decide what is called, what it may cost, and how the
// answer comes back. They have fields of their own, which are checked.
var reserved = []string{"model", "messages", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "service_tier"}

// finish adds what concerns the answer as a whole, then the members of extra_json, and writes the body.
func (e *encoder) finish(stream bool) []byte {
	e.Carries(vendors.EnableGoogleSearch, e.req.GetEnableGoogleSearch())
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
	taken := reserved
	if e.req.GetReasoningEffort() != "" { // it may stand in the body under another name
		taken = append(slices.Clip(taken), vendors.ReasoningEffort.Param())
	}
	var kept openaiapi.Members
	for _, m := range e.without(e.extra, body, taken...) {
		if !e.takesExtra(m.Name) {
			e.Drop(m.Name)
			continue
		}
		if e.ollama && slices.ContainsFunc(ollamaIgnores, func(f vendors.Field) bool { return f.Param() == m.Name }) {
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
		e.Drop("stream_options")
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
			e.Drop(m.Name)
		} else {
			kept = append(kept, m)
		}
	}
	return kept
}

// taken are the members that a vendor takes at the place of a field; all others are reported, each by its name.
func (e *encoder) taken(f vendors.Field, members openaiapi.Members) openaiapi.Members {
	if e.table.Carries(f) {
		return members
	}
	for _, m := range members {
		e.Drop(m.Name)
	}
	return nil
}

func isOneOf(name string, names []string) bool {
	return slices.ContainsFunc(names, func(other string) bool { return strings.EqualFold(name, other) })
}
