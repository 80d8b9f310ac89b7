package gemini

import (
	"slices"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

const (
	// maxCandidates is the most answers that one call gives.
	maxCandidates = 8
	// maxStops is the most stop sequences that the vendor takes.
	maxStops = 5
)

// encoded is a request on its way, and what its answer is to be read with.
type encoded struct {
	body    []byte
	dropped []string
	// enforced: the vendor holds the answer to the whole schema.
	enforced bool
	// names maps the names of functions as the vendor knows them to the caller's, where they differ.
	names map[string]string
	// asked is the number of answers.
	asked int
}

// encoder turns one request into the wire's. It never changes the request.
type encoder struct {
	target vendors.Target
	req    *ktmsv1.GenerateTextRequest
	gen    generation
	table  vendors.Table
	ledger *vendors.Ledger

	system   []part
	contents []content
	// open are the calls of the model's last turn, whose results are still to be written.
	open []openCall
	// results holds the tool messages of each tool_call_id.
	results map[string]*results

	functions []function
	names     map[string]string
	search    bool
	validated bool
	format    format
}

func encode(t vendors.Target, req *ktmsv1.GenerateTextRequest) (*encoded, *vendors.Error) {
	g := generationOf(t.Model)
	e := &encoder{target: t, req: req, gen: g, table: tableOf(g)}
	e.ledger = vendors.NewLedger(t.Vendor, e.table)
	e.tools()
	e.conversation()
	e.responseFormat()
	e.ends()
	e.others()
	body := e.write()
	dropped, failed := e.ledger.Close(req.GetStrictParams())
	if failed != nil {
		return nil, failed
	}
	return &encoded{
		body: body, dropped: dropped, enforced: e.format.enforced, names: e.names, asked: int(max(1, req.GetN())),
	}, nil
}

// write writes the body from what was gathered.
func (e *encoder) write() []byte {
	w := &writer{buf: make([]byte, 0, sizeHint(e.req))}
	w.group('{', '}', func() {
		if len(e.system) > 0 {
			w.name("systemInstruction")
			w.content(&content{parts: e.system})
		}
		w.array("contents", func() {
			for i := range e.contents {
				w.content(&e.contents[i])
			}
		})
		e.writeTools(w)
		e.writeConfig(w)
		if tier := e.serviceTier(); tier != "" {
			w.text("serviceTier", tier)
		}
	})
	return w.buf
}

// sizeHint spares the growing of the body's buffer, mostly.
func sizeHint(req *ktmsv1.GenerateTextRequest) int {
	size := 1024 + len(req.GetBaseSystemInstruction()) + len(req.GetRequestInstruction())
	for _, m := range req.GetMessages() {
		size += 128 + len(m.GetText()) + len(m.GetOpaque())
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

// carries asks for a field. A value that asks for what happens anyway (n: 1) needs no place with the vendor.
func (e *encoder) carries(f vendors.Field, set, anyway bool) bool {
	lost := e.table[f].How == vendors.Dropped || e.table[f].How == vendors.Refused
	return e.ledger.Carries(f, set && (!anyway || !lost))
}

// extra reports the members beside the known ones, each by its name: this dialect has a place for none.
func (e *encoder) extra(param, text string) {
	if text == "" {
		return
	}
	members, err := openaiapi.ParseMembers([]byte(text))
	if err != nil {
		e.ledger.Wrong(param, "is not a JSON object")
		return
	}
	for _, m := range members {
		if string(m.Value) != "null" { // which says nothing
			e.ledger.Drop(m.Name)
		}
	}
}

// others are the fields that the vendor has nothing like.
func (e *encoder) others() {
	r := e.req
	e.carries(vendors.LogitBias, len(r.GetLogitBias()) > 0, false)
	e.carries(vendors.ParallelToolCalls, r.ParallelToolCalls != nil, r.GetParallelToolCalls())
	e.carries(vendors.Verbosity, r.GetVerbosity() != "", false)
	e.carries(vendors.PromptCacheKey, r.GetPromptCacheKey() != "", false)
	e.carries(vendors.BetaHeaders, len(r.GetBetaHeaders()) > 0, false)
	e.extra("extra_json", r.GetExtraJson())
}

func (e *encoder) serviceTier() string {
	tier := e.req.GetServiceTier()
	if !e.carries(vendors.ServiceTier, tier != "", false) {
		return ""
	}
	switch tier {
	case "auto", "default", "standard":
		return "standard"
	case "flex", "priority":
		return tier
	}
	e.ledger.Drop(vendors.ServiceTier.Param())
	return ""
}

// writeConfig writes the generationConfig, if there is anything in it.
func (e *encoder) writeConfig(w *writer) {
	inner := &writer{}
	e.sampling(inner)
	e.answers(inner)
	e.thinking(inner)
	if e.format.mime != "" {
		inner.text("responseMimeType", e.format.mime)
	}
	if e.format.schema != nil {
		inner.raw("responseJsonSchema", e.format.schema)
	}
	if len(inner.buf) > 0 {
		w.object("generationConfig", func() { w.buf = append(w.buf, inner.buf...) })
	}
}

func (e *encoder) sampling(w *writer) {
	r := e.req
	if e.carries(vendors.Temperature, r.Temperature != nil, false) {
		w.number("temperature", r.GetTemperature())
	}
	if e.carries(vendors.TopP, r.TopP != nil, false) {
		w.number("topP", r.GetTopP())
	}
	if e.carries(vendors.TopK, r.TopK != nil, false) {
		w.integer("topK", int64(r.GetTopK()))
	}
	if e.carries(vendors.PresencePenalty, r.PresencePenalty != nil, r.GetPresencePenalty() == 0) {
		w.number("presencePenalty", r.GetPresencePenalty())
	}
	if e.carries(vendors.FrequencyPenalty, r.FrequencyPenalty != nil, r.GetFrequencyPenalty() == 0) {
		w.number("frequencyPenalty", r.GetFrequencyPenalty())
	}
	if e.carries(vendors.Seed, r.Seed != nil, false) {
		w.integer("seed", int64(int32(r.GetSeed()))) // the vendor's has 32 bits; the same seed stays the same
	}
}

// answers are the fields about how many answers there are, where they end, and what is told of their tokens.
func (e *encoder) answers(w *writer) {
	r := e.req
	if e.carries(vendors.N, r.N != nil, r.GetN() == 1) {
		if r.GetN() > maxCandidates {
			e.ledger.Refuse(vendors.N.Param(), "it gives at most 8 answers to one call")
		}
		w.integer("candidateCount", int64(r.GetN()))
	}
	if e.carries(vendors.MaxOutputTokens, r.GetMaxOutputTokens() > 0, false) {
		w.integer("maxOutputTokens", int64(r.GetMaxOutputTokens()))
	}
	stops := slices.DeleteFunc(slices.Clone(r.GetStop()), func(s string) bool { return s == "" })
	if e.carries(vendors.Stop, len(stops) > 0, false) {
		if len(stops) > maxStops {
			stops = stops[:maxStops]
			e.ledger.Drop(vendors.Stop.Param())
		}
		w.texts("stopSequences", stops)
	}
	alternatives := r.GetTopLogprobs()
	if r.Logprobs != nil && !r.GetLogprobs() {
		alternatives = 0 // none are wanted
	}
	if e.carries(vendors.Logprobs, r.GetLogprobs() || alternatives > 0, false) {
		w.raw("responseLogprobs", []byte("true"))
	}
	if e.carries(vendors.TopLogprobs, alternatives > 0, false) {
		w.integer("logprobs", int64(alternatives))
	}
}

// thinking says how much to think. Thoughts are asked for with it, since the vendor hides them otherwise.
func (e *encoder) thinking(w *writer) {
	effort := e.req.GetReasoningEffort()
	if !e.carries(vendors.ReasoningEffort, effort != "", false) {
		return
	}
	level := e.gen.level(effort)
	budget, known := e.gen.budget(effort)
	if !known {
		e.ledger.Drop(vendors.ReasoningEffort.Param())
		return
	}
	w.object("thinkingConfig", func() {
		if effort != "none" {
			w.raw("includeThoughts", []byte("true"))
		}
		if e.gen.thinking == thinkingBudget {
			w.integer("thinkingBudget", budget)
		} else {
			w.text("thinkingLevel", level)
		}
	})
}
