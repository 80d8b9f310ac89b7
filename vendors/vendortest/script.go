package vendortest

import (
	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// Script spells answers and failures in the words of one dialect.
type Script struct {
	// UnaryType and StreamType are the content types of answers.
	UnaryType, StreamType string
	// SSE: streams are server-sent events.
	SSE bool
	// Reasoning: the dialect shows reasoning.
	Reasoning bool
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
}

// Answer is what a vendor is to say.
type Answer struct {
	ID    string
	Model string
	// Reasoning and Text come in these pieces over a stream.
	Reasoning []string
	Text      []string
	Calls     []ToolCall
	// FinishReason is one of ktms.v1.
	FinishReason string
	Usage        *ktmsv1.TokensUsage
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
