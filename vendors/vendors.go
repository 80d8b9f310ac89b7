// Package vendors is the contract between Keystone and the services that answer requests.
//
// One package per wire dialect implements it (openai, …); each has exactly one encoder from and one decoder to the
// messages of ktms.v1. The suite in vendortest runs on every dialect.
package vendors

import (
	"context"
	"iter"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// Names of the vendors, as ModelSpec.vendor spells them.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
	Google    = "google"
	DeepSeek  = "deepseek"
	Groq      = "groq"
	Mistral   = "mistral"
	Azure     = "azure"
	Bedrock   = "bedrock"
	Ollama    = "ollama"
	TypeSafe  = "typesafe"
	// Local is the pool of registered nodes.
	Local = "local"
	// Demo is the built-in model that echoes; it exists only in ktms-server dev.
	Demo = "demo"
)

// Vendor speaks one wire dialect. It is safe for concurrent use and keeps nothing per request. Cancelling ctx closes
// the upstream body. Every error is an *Error. Neither method changes req.
type Vendor interface {
	// Generate makes one non-streaming vendor call.
	Generate(ctx context.Context, t Target, req *ktmsv1.GenerateTextRequest) (*Answer, error)
	// Stream makes one streaming call. The first event is a Head, as soon as the vendor accepted the call; the last
	// chunks carry finish reasons and usage. Usage that is marked as estimated is the input side alone, which some vendors
	// count at the start; it stands for what is missing if the stream breaks, and reaches no caller. An error ends the sequence; so does breaking out of it, which closes the
	// upstream body. A stream that ends without a finish reason for every choice ends in an error.
	Stream(ctx context.Context, t Target, req *ktmsv1.GenerateTextRequest) iter.Seq2[Event, error]
	// Fields says how the dialect carries each request field to a model of a vendor. An empty model stands for the
	// vendor's current ones.
	Fields(vendor, model string) Table
}

// Embedder is a Vendor that can turn texts into vectors.
type Embedder interface {
	// Embed makes one call. The embeddings stand in the order of the inputs, one for each; the routing fields are the
	// caller's to fill.
	Embed(ctx context.Context, t Target, req *ktmsv1.GetEmbeddingsRequest) (*ktmsv1.GetEmbeddingsResponse, error)
}

// Bounder is a Vendor that bounds the answers to requests that do not.
type Bounder interface {
	// MaxOutput is the most tokens of one answer to a request without max_output_tokens; 0 is no bound.
	MaxOutput(t Target, req *ktmsv1.GenerateTextRequest) int64
}

// Pool is a Vendor whose models come and go with machines.
type Pool interface {
	// Absent says why nobody could serve a model at this moment, in words that follow the model's id; "" = somebody may.
	// A machine that is busy may.
	Absent(model string) string
}

// Visit is what choosing a machine of the local pool needs to know of an attempt.
type Visit struct {
	// ID is the attempt's, unique for ever.
	ID string
	// Tenant is whose request it is: what one has asked shall not show in the waits of another.
	Tenant string
	// PromptTokens is estimated.
	PromptTokens int64
	// Patience is how long to wait for a free slot; 0 = not at all.
	Patience time.Duration
	// Tried are the machines that have failed the request.
	Tried []string
}

// Target is where one attempt goes.
type Target struct {
	// Vendor is one of the names above.
	Vendor string
	// Model is the id sent to the vendor.
	Model string
	// BaseURL replaces the vendor's own when it is set.
	BaseURL string
	Key     Secret
	// Capabilities are those that the model declares in the catalogue (no_thinking, prompt_cache, …).
	Capabilities []string
	// MaxOutputTokens is the catalogue's maximum for the model; 0 is unknown.
	MaxOutputTokens int64
	// Visit is of the local pool alone.
	Visit Visit
}

// Head is what a vendor says before its answer.
type Head struct {
	// Dropped names the request fields that the dialect could not carry, as a caller spells them.
	Dropped []string
	// RequestID is the vendor's own id of the call.
	RequestID string
	// Node is the machine of the local pool that answers. It is for the log.
	Node string
	// Enforced: the vendor itself holds the answer to the schema that was asked for, all of it. Otherwise the caller of
	// this package checks.
	Enforced bool
}

// Answer is a complete answer. Response carries what the vendor said: choices, usage, its own id, model, fingerprint
// and tier. The routing fields are the caller's to fill.
type Answer struct {
	Head     Head
	Response *ktmsv1.GenerateTextResponse
}

// Event is one step of a stream: either a Head or a Chunk.
type Event struct {
	Head  *Head
	Chunk *ktmsv1.GenerateTextChunk
}

// HasContent reports whether a chunk gives the caller something that cannot be taken back: text, reasoning, a
// refusal, a tool call or an end. A chunk without content is a preamble.
func HasContent(c *ktmsv1.GenerateTextChunk) bool {
	return c.GetDelta() != "" || c.GetReasoningDelta() != "" || c.GetRefusalDelta() != "" || c.GetOpaque() != "" ||
		len(c.GetToolCallChunks()) > 0 || c.GetFinishReason() != "" || c.GetExtraJson() != "" || c.GetLogprobsJson() != ""
}
