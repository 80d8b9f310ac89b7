package main

import (
	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// Efforts that seeded models serve.
var (
	low    = ktmsv1.Effort_EFFORT_LOW
	medium = ktmsv1.Effort_EFFORT_MEDIUM
	high   = ktmsv1.Effort_EFFORT_HIGH
)

// longPrompt is where OpenAI's current models change price, for the whole request.
const longPrompt = 272_000

// entry is a line of the seed catalogue. Prices are USD per million tokens as the vendors listed them on 2026-11-30;
// where one was about to change, the later price stands. Operators correct them with UpsertModel.
type entry struct {
	vendor, id   string
	efforts      []ktmsv1.Effort
	capabilities []string
	// in, cached, write and out are the prices; long are the same for a prompt above longFrom.
	in, cached, write, out float64
	longFrom               int64
	long                   [4]float64
	context, maxOutput     int64
}

// catalogue lists, per vendor, the cheapest current model that does each tier well, strongest last.
var catalogue = []entry{
	{vendor: vendors.OpenAI, id: "gpt-6-luna", efforts: []ktmsv1.Effort{low, medium}, capabilities: []string{"vision", "pdf_input"},
		in: 0.10, cached: 0.01, write: 0.125, out: 0.50, longFrom: longPrompt, long: [4]float64{0.20, 0.02, 0.25, 0.75}, context: 1_050_000, maxOutput: 128_000},
	{vendor: vendors.OpenAI, id: "gpt-6.1-terra", efforts: []ktmsv1.Effort{medium, high}, capabilities: []string{"vision", "pdf_input"},
		in: 1, cached: 0.05, write: 1.25, out: 5, longFrom: longPrompt, long: [4]float64{2, 0.10, 2.50, 7.50}, context: 1_050_000, maxOutput: 128_000},
	{vendor: vendors.OpenAI, id: "gpt-6.2-sol", efforts: []ktmsv1.Effort{high}, capabilities: []string{"vision", "pdf_input"},
		in: 2, cached: 0.10, write: 2.50, out: 10, longFrom: longPrompt, long: [4]float64{4, 0.20, 5, 15}, context: 1_050_000, maxOutput: 128_000},
	{vendor: vendors.OpenAI, id: "text-embedding-3-small", capabilities: []string{"embedding"}, in: 0.02},

	{vendor: vendors.Anthropic, id: "claude-haiku-5-5", efforts: []ktmsv1.Effort{low, medium}, capabilities: []string{"vision", "pdf_input", "prompt_cache"},
		in: 0.10, cached: 0.01, write: 0.125, out: 0.50, longFrom: 100_000, long: [4]float64{0.50, 0.05, 0.625, 2.50}, context: 1_000_000, maxOutput: 128_000},
	{vendor: vendors.Anthropic, id: "claude-sonnet-5-5", efforts: []ktmsv1.Effort{medium, high}, capabilities: []string{"vision", "pdf_input", "prompt_cache"},
		in: 2, cached: 0.10, write: 2.50, out: 10, context: 1_000_000, maxOutput: 128_000},
	{vendor: vendors.Anthropic, id: "claude-opus-5-5", efforts: []ktmsv1.Effort{high}, capabilities: []string{"vision", "pdf_input", "prompt_cache"},
		in: 4, cached: 0.20, write: 5, out: 20, context: 1_000_000, maxOutput: 128_000},

	{vendor: vendors.Google, id: "gemini-3.1-flash-lite", efforts: []ktmsv1.Effort{low}, capabilities: []string{"vision", "audio_input", "pdf_input"},
		in: 0.25, cached: 0.025, out: 1.50},
	{vendor: vendors.Google, id: "gemini-3.8-flash", efforts: []ktmsv1.Effort{low, medium}, capabilities: []string{"google_search", "vision", "audio_input", "pdf_input"},
		in: 1.50, cached: 0.15, out: 7.50},
	{vendor: vendors.Google, id: "gemini-4-argon", efforts: []ktmsv1.Effort{medium, high}, capabilities: []string{"google_search", "vision", "audio_input", "pdf_input"},
		in: 4, cached: 0.20, out: 20},
	{vendor: vendors.Google, id: "gemini-embedding-001", capabilities: []string{"embedding"}, in: 0.15},
}

// spec turns a line into a model, at the given endpoint.
func (e entry) spec(endpoint string) *ktmsv1.ModelSpec {
	m := &ktmsv1.ModelSpec{
		Id: e.id, Vendor: e.vendor, Endpoint: endpoint, Efforts: e.efforts, Capabilities: e.capabilities, Enabled: true,
		PriceInPerMtok: e.in, PriceOutPerMtok: e.out, PriceCacheReadPerMtok: e.cached, PriceCacheWritePerMtok: e.write,
		ContextLength: e.context, MaxOutputTokens: e.maxOutput,
	}
	if e.longFrom > 0 {
		m.PriceTiers = []*ktmsv1.PriceTier{{AbovePromptTokens: e.longFrom, PriceInPerMtok: e.long[0],
			PriceCacheReadPerMtok: e.long[1], PriceCacheWritePerMtok: e.long[2], PriceOutPerMtok: e.long[3]}}
	}
	return m
}
