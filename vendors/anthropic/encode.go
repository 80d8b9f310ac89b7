package anthropic

import (
	"slices"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// encoded is a request on its way.
type encoded struct {
	body     []byte
	dropped  []string
	enforced bool
	beta     string
	// names are the caller's names of the tools whose names had to be changed.
	names map[string]string
}

// encoder turns one request into the wire's. It never changes the request.
type encoder struct {
	*vendors.Ledger
	target vendors.Target
	req    *ktmsv1.GenerateTextRequest
	gen    claude.Generation

	system []*block
	turns  []*turn
	talk   conversation
	tools  []*tool
	choice *toolChoice

	maxTokens   int64
	temperature *float64
	topP        *float64
	topK        *int32
	stop        []string
	tier        string
	thinking    string // its type
	budget      int64
	effort      string
	format      []byte // the schema of the answer

	enforced bool
	beta     string
	names    map[string]string // of tools, by their wire names
	declared map[string]bool   // the wire names of the tools
}

func encode(t vendors.Target, req *ktmsv1.GenerateTextRequest, stream bool) (*encoded, *vendors.Error) {
	gen, _ := claude.GenerationOf(t.Model)
	e := &encoder{
		Ledger: vendors.NewLedger(t.Vendor, fieldsOf(t.Model)), target: t, req: req, gen: gen,
		names: map[string]string{}, declared: map[string]bool{},
	}
	e.conversation()
	if failed := e.Failed(); failed != nil {
		return nil, failed // the turns are not whole, and what follows reads them
	}
	e.begin()
	e.declareTools()
	e.chooseTools()
	e.responseFormat()
	e.ceiling()
	e.think()
	e.sampling()
	e.others()
	e.end()
	e.breakpoints()
	dropped, failed := e.Close(req.GetStrictParams())
	if failed != nil {
		return nil, failed
	}
	return &encoded{body: e.write(stream), dropped: dropped, enforced: e.enforced, beta: e.beta, names: e.names}, nil
}

// ceiling decides on max_tokens, which the vendor demands. More than the model has would be refused, and cannot come.
func (e *encoder) ceiling() {
	if e.Carries(vendors.MaxOutputTokens, e.req.GetMaxOutputTokens() > 0) {
		e.maxTokens = int64(e.req.GetMaxOutputTokens())
		if most := e.target.MaxOutputTokens; most > 0 {
			e.maxTokens = min(e.maxTokens, most)
		}
		return
	}
	e.maxTokens = unbounded(e.target, e.gen, e.req)
}

// unbounded is the max_tokens of a request that names none: what the model has, or room enough.
func unbounded(t vendors.Target, gen claude.Generation, req *ktmsv1.GenerateTextRequest) int64 {
	if t.MaxOutputTokens > 0 {
		return t.MaxOutputTokens
	}
	return gen.Ceiling(req.GetReasoningEffort())
}

// MaxOutput implements vendors.Bounder.
func (v *Vendor) MaxOutput(t vendors.Target, req *ktmsv1.GenerateTextRequest) int64 {
	gen, _ := claude.GenerationOf(t.Model)
	return unbounded(t, gen, req)
}

// sampling. What the vendor does anyway is not reported where it cannot be said.
func (e *encoder) sampling() {
	r := e.req
	thinks := e.thinking == "enabled" || e.thinking == "adaptive" // takes the defaults alone
	if e.Carries(vendors.Temperature, r.Temperature != nil && (e.gen.Sampling || r.GetTemperature() != 1)) {
		if thinks && r.GetTemperature() != 1 {
			e.Drop(vendors.Temperature.Param())
		} else {
			e.temperature = new(min(r.GetTemperature(), 1))
		}
	}
	if e.Carries(vendors.TopP, r.TopP != nil && (e.gen.Sampling || r.GetTopP() != 1)) {
		if thinks || e.gen.OneSampler && e.temperature != nil {
			if r.GetTopP() != 1 {
				e.Drop(vendors.TopP.Param())
			}
		} else {
			e.topP = r.TopP
		}
	}
	if e.Carries(vendors.TopK, r.TopK != nil) {
		if thinks {
			e.Drop(vendors.TopK.Param())
		} else {
			e.topK = r.TopK
		}
	}
	if e.Carries(vendors.Stop, len(r.GetStop()) > 0) {
		for _, s := range r.GetStop() {
			if strings.TrimSpace(s) == "" {
				e.Drop(vendors.Stop.Param())
			} else {
				e.stop = append(e.stop, s)
			}
		}
	}
}

// serviceTiers maps the names of tiers to the vendor's.
var serviceTiers = map[string]string{"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}

// others are the fields that the vendor has little or nothing for.
func (e *encoder) others() {
	r := e.req
	e.Carries(vendors.Seed, r.Seed != nil)
	e.Carries(vendors.PresencePenalty, r.GetPresencePenalty() != 0)
	e.Carries(vendors.FrequencyPenalty, r.GetFrequencyPenalty() != 0)
	e.Carries(vendors.LogitBias, len(r.GetLogitBias()) > 0)
	e.Carries(vendors.Logprobs, r.GetLogprobs())
	e.Carries(vendors.TopLogprobs, r.GetTopLogprobs() > 0)
	e.Carries(vendors.N, r.GetN() > 1)
	e.Carries(vendors.Verbosity, r.GetVerbosity() != "")
	e.Carries(vendors.PromptCacheKey, r.GetPromptCacheKey() != "")
	e.Carries(vendors.EnableGoogleSearch, r.GetEnableGoogleSearch())
	if e.Carries(vendors.ServiceTier, r.GetServiceTier() != "") {
		if e.tier = serviceTiers[r.GetServiceTier()]; e.tier == "" {
			e.Drop(vendors.ServiceTier.Param())
		}
	}
	for header, value := range r.GetBetaHeaders() {
		switch value = strings.TrimSpace(value); {
		case value == "":
		case header != "anthropic-beta":
			e.Drop(vendors.BetaHeaders.Param())
		case e.Carries(vendors.BetaHeaders, true):
			e.beta = value
		}
	}
	e.extra("extra_json", r.GetExtraJson())
}

// extra reads further members, and reports all but those that are asked for.
func (e *encoder) extra(path, text string, known ...string) openaiapi.Members {
	if text == "" {
		return nil
	}
	members, err := openaiapi.ParseMembers([]byte(text))
	if err != nil {
		e.Wrong(path, "is not a JSON object")
		return nil
	}
	var kept openaiapi.Members
	for _, m := range members {
		switch {
		case string(m.Value) == "null": // says nothing
		case slices.Contains(known, m.Name):
			kept.Add(m.Name, m.Value)
		default:
			e.Drop(m.Name)
		}
	}
	return kept
}

// sizeHint spares the growing of the body's buffer, mostly.
func (e *encoder) sizeHint() int {
	size := 1024
	var add func(blocks []*block)
	add = func(blocks []*block) {
		for _, b := range blocks {
			size += 128 + len(b.raw) + len(b.text) + len(b.input)
			if b.source != nil {
				size += len(b.source.data)*4/3 + len(b.source.value)
			}
			add(b.content)
		}
	}
	add(e.system)
	for _, t := range e.turns {
		add(t.blocks)
	}
	for _, t := range e.tools {
		size += 128 + len(t.description) + len(t.schema)
	}
	return size + size/16
}

// write writes the body.
func (e *encoder) write(stream bool) []byte {
	w := &writer{buf: append(make([]byte, 0, e.sizeHint()), '{')}
	w.str("model", e.target.Model)
	w.integer("max_tokens", e.maxTokens)
	if stream {
		w.raw("stream", []byte("true"))
	}
	if len(e.system) > 0 {
		w.blocks("system", e.system)
	}
	w.open("messages", '[')
	for _, t := range e.turns {
		w.open("", '{')
		w.str("role", t.role)
		w.blocks("content", t.blocks)
		w.close('}')
	}
	w.close(']')
	if len(e.tools) > 0 {
		w.open("tools", '[')
		for _, t := range e.tools {
			w.tool(t)
		}
		w.close(']')
	}
	w.choice(e.choice)
	if e.thinking != "" {
		w.open("thinking", '{')
		w.str("type", e.thinking)
		if e.budget > 0 {
			w.integer("budget_tokens", e.budget)
		}
		w.close('}')
	}
	if e.effort != "" || e.format != nil {
		w.open("output_config", '{')
		w.opt("effort", e.effort)
		if e.format != nil {
			w.open("format", '{')
			w.str("type", "json_schema")
			w.raw("schema", e.format)
			w.close('}')
		}
		w.close('}')
	}
	if e.temperature != nil {
		w.name("temperature")
		w.buf = openaiapi.AppendNumber(w.buf, *e.temperature)
	}
	if e.topP != nil {
		w.name("top_p")
		w.buf = openaiapi.AppendNumber(w.buf, *e.topP)
	}
	if e.topK != nil {
		w.integer("top_k", int64(*e.topK))
	}
	if len(e.stop) > 0 {
		w.open("stop_sequences", '[')
		for _, s := range e.stop {
			w.next()
			w.buf = openaiapi.AppendString(w.buf, s)
		}
		w.close(']')
	}
	w.opt("service_tier", e.tier)
	w.close('}')
	return w.buf
}
