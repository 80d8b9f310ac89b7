package vendortest

import (
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// Script spells answers and failures in the words of one dialect.
type Script struct {
	// UnaryType and StreamType are the content types of answers.
	UnaryType, StreamType string
	// SSE: streams are server-sent events.
	SSE bool
	// Nameless: answers carry neither an id nor the model that gave them.
	Nameless bool
	// Reasoning: the dialect shows reasoning.
	Reasoning bool
	// ReasoningUncounted: usage does not tell reasoning from the rest of the output.
	ReasoningUncounted bool
	// Signed: answers carry Answer.Signature, and the vendor wants it back with the next turn.
	Signed bool
	// Refusals: answers carry Answer.Refusal apart from their text.
	Refusals bool
	// CacheWrites: usage tells what was written to the prompt cache; CacheWrites1H: and what of it for an hour.
	CacheWrites, CacheWrites1H bool
	// Body spells a complete answer.
	Body func(Answer) string
	// Stream spells the same answer as a stream.
	Stream func(Answer) Stream
	// Failure spells the body of an answer with an error status.
	Failure func(message string) string
	// Failures are the dialect's own.
	Failures []Failure
	// HiddenFailures are bodies of answers with status 200 that are failures for which nobody but the vendor is to
	// blame.
	HiddenFailures []string
	// StreamFailures are the same within a stream, each as one piece.
	StreamFailures []string
	// Garbage is a piece of a stream that cannot be read.
	Garbage string
	// FinishReasons maps every reason that the vendor is known to give, in its own words, to ours.
	FinishReasons map[string]string
	// Waits are refusals that say when to come back.
	Waits []Wait
	// Check reads a request as strictly as the vendor does: unknown members, missing ones, wrong types, turns in an order
	// that the vendor refuses. It returns what is wrong, "" for nothing.
	Check func(*Call) string
	// Embeddings spells the answer to a call for embeddings, in the format that the call asks for; nil if the dialect has
	// none.
	Embeddings func(c *Call, vectors [][]float32, inputTokens int64) string
}

// Answer is what a vendor is to say.
type Answer struct {
	ID    string
	Model string
	// Reasoning and Text come in these pieces over a stream.
	Reasoning []string
	Text      []string
	Calls     []ToolCall
	// Refusal is the text of a refusal, where the dialect has it apart.
	Refusal string
	// Signature is opaque state that belongs to the reasoning, or to the calls if there is none.
	Signature string
	// FinishReason is one of ktms.v1. RawFinishReason, where it is set, is the vendor's own word instead.
	FinishReason, RawFinishReason string
	Usage                         *ktmsv1.TokensUsage
}

// reason is the word with which the answer ends, in dialects whose words are ours.
func (a Answer) reason() string {
	if a.RawFinishReason != "" {
		return a.RawFinishReason
	}
	return a.FinishReason
}

// ToolCall is a call that the model asks for; its arguments come in these pieces over a stream.
type ToolCall struct {
	ID, Name  string
	Arguments []string
}

// Stream is an answer in the pieces that a server would write.
type Stream struct {
	// Preamble comes before any content; dialects may have none.
	Preamble []string
	// Content is the answer, up to and without its end.
	Content []string
	// Finish says why the answer ended.
	Finish []string
	// Usage comes after it, if it comes apart.
	Usage []string
	// End closes the stream.
	End []string
}

// All returns the pieces in order.
func (s Stream) All() []string {
	var all []string
	for _, pieces := range [][]string{s.Preamble, s.Content, s.Finish, s.Usage, s.End} {
		all = append(all, pieces...)
	}
	return all
}

// Failure is an answer with an error status, and what it means.
type Failure struct {
	Name   string
	Status int
	Body   string
	Kind   vendors.Kind
	// Param is the request field that it names.
	Param string
}

// Wait is an answer with an error status that says how long to wait; Want is what is to be made of it.
type Wait struct {
	Name   string
	Status int
	// Header holds names and values in turn.
	Header []string
	Body   string
	Want   time.Duration
}
