package vendortest

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// Subject is a dialect under test.
type Subject struct {
	// New returns a Vendor whose calls go through carrier, or through connections of its own if carrier is nil.
	New func(carrier http.RoundTripper) vendors.Vendor
	// Key makes a credential of this vendor out of a secret; nil takes the secret as it is.
	Key func(secret string) string
	// Target points at an upstream. The suite replaces its key.
	Target func(baseURL string) vendors.Target
	Script Script
	// ModelOnly leaves out what is the same for every model of the dialect: how answers are read, and what goes wrong on
	// the way. It is for further models beside one that is held to everything.
	ModelOnly bool
	// Headers are the request headers that may go out beside Accept, Content-Length, Content-Type and User-Agent.
	Headers []string
}

// Key is the credential of every call of the suite. No error may show it.
const Key = "canary-4f9c2e71-do-not-print"

// Run holds a dialect to the contract of package vendors.
func Run(t *testing.T, s Subject) {
	before := runtime.NumGoroutine()
	for _, group := range []struct {
		name    string
		cases   []testCase
		ofModel bool
	}{
		{"answers", answerCases, false}, {"leaving", leavingCases, false}, {"faults", faultCases, false}, {"statuses", statusCases, false},
		{"hygiene", hygieneCases, false}, {"fields", fieldCases, true}, {"content", contentCases, true}, {"reasons", reasonCases, true},
		{"embeddings", embeddingCases, false},
	} {
		if s.ModelOnly && !group.ofModel {
			continue
		}
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.cases {
				if c.needs != nil && !c.needs(&s.Script) {
					continue
				}
				t.Run(c.name, func(t *testing.T) { c.run(newFixture(t, s)) })
			}
		})
	}
	awaitGoroutines(t, before)
}

type testCase struct {
	name  string
	run   func(*fixture)
	needs func(*Script) bool
}

// fixture is a dialect and an upstream for one case.
type fixture struct {
	*testing.T
	Subject
	up     *Upstream
	vendor vendors.Vendor
	target vendors.Target
}

func newFixture(t *testing.T, s Subject) *fixture {
	f := &fixture{T: t, Subject: s, up: NewUpstream(t)}
	f.use(nil)
	f.target = s.Target(f.up.URL)
	f.target.Key = s.credential(Key)
	return f
}

func (s *Subject) credential(secret string) vendors.Secret {
	if s.Key != nil {
		secret = s.Key(secret)
	}
	return vendors.NewSecret(secret)
}

// use makes the calls go through carrier.
func (f *fixture) use(carrier http.RoundTripper) {
	f.vendor = f.New(carrier)
	if closer, ok := f.vendor.(interface{ CloseIdleConnections() }); ok {
		f.Cleanup(closer.CloseIdleConnections)
	}
}

// awaitGoroutines checks that no call left anything running.
func awaitGoroutines(t *testing.T, before int) {
	deadline := time.Now().Add(patience)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
		}
		runtime.Gosched()
	}
}

// request is what most cases ask.
func request() *ktmsv1.GenerateTextRequest {
	return &ktmsv1.GenerateTextRequest{
		ModelOverride: "m",
		Messages:      []*ktmsv1.Message{{Role: ktmsv1.MessageRole_MESSAGE_ROLE_USER, Text: "hello"}},
	}
}

// hello is what most cases are answered.
func hello() Answer {
	return Answer{
		ID: "answer-1", Model: "model-1", Text: []string{"Hel", "lo, ", "wörld ☃"}, FinishReason: "stop",
		Usage: &ktmsv1.TokensUsage{Input: 12, Output: 7, CacheRead: 4},
	}
}

func (f *fixture) generate(ctx context.Context, req *ktmsv1.GenerateTextRequest) (*vendors.Answer, error) {
	answer, err := f.vendor.Generate(ctx, f.target, req)
	if (answer == nil) == (err == nil) {
		f.Errorf("answer %v with error %v", answer, err)
	}
	f.checkError(err)
	return answer, err
}

// result is a stream put together again.
type result struct {
	head    *vendors.Head
	chunks  []*ktmsv1.GenerateTextChunk
	answers map[int32]*ktmsv1.Choice
	usage   *ktmsv1.TokensUsage
	begun   *ktmsv1.TokensUsage // the input side, told at the start
	err     error
}

func (r *result) first() *ktmsv1.Choice {
	if c := r.answers[0]; c != nil {
		return c
	}
	return &ktmsv1.Choice{}
}

func (f *fixture) stream(ctx context.Context, req *ktmsv1.GenerateTextRequest) *result {
	return f.collect(ctx, req, nil)
}

// collect reads a stream; step is told of every event and ends the reading by returning false.
func (f *fixture) collect(ctx context.Context, req *ktmsv1.GenerateTextRequest, step func(vendors.Event) bool) *result {
	f.Helper()
	r := &result{answers: map[int32]*ktmsv1.Choice{}}
	for event, err := range f.vendor.Stream(ctx, f.target, req) {
		if r.err != nil {
			f.Error("an error did not end the stream")
		}
		if err != nil {
			f.checkError(err)
			if event.Head != nil || event.Chunk != nil {
				f.Error("an error came together with an event")
			}
			r.err = err
			continue
		}
		if (event.Head == nil) == (event.Chunk == nil) {
			f.Errorf("an event is neither a head nor a chunk: %v", event)
		}
		switch {
		case event.Head != nil && (r.head != nil || r.chunks != nil):
			f.Error("the head is not the first event, or not alone")
		case event.Head != nil:
			r.head = event.Head
		case r.head == nil:
			f.Error("a chunk came before the head")
		}
		if event.Chunk != nil {
			f.add(r, event.Chunk)
		}
		if step != nil && !step(event) {
			break
		}
	}
	return r
}

// add puts a chunk to what came before, as a caller would.
func (f *fixture) add(r *result, c *ktmsv1.GenerateTextChunk) {
	r.chunks = append(r.chunks, c)
	if u := c.GetUsage(); u != nil && u.GetEstimated() {
		r.begun = u
		if u.GetOutput() != 0 || r.usage != nil {
			f.Errorf("usage of the input side alone: %v", u)
		}
	} else if u != nil {
		r.usage = u
	}
	if !vendors.HasContent(c) {
		return
	}
	choice := r.answers[c.GetIndex()]
	if choice == nil {
		choice = &ktmsv1.Choice{Index: c.GetIndex()}
		r.answers[c.GetIndex()] = choice
	}
	choice.Text += c.GetDelta()
	choice.Reasoning += c.GetReasoningDelta()
	choice.Refusal += c.GetRefusalDelta()
	for _, piece := range c.GetToolCallChunks() {
		at := int(piece.GetIndex())
		switch {
		case at == len(choice.ToolCalls):
			if piece.GetId() == "" || piece.GetName() == "" || piece.GetType() == "" {
				f.Errorf("the first piece of a call lacks its id, name or type: %v", piece)
			}
			choice.ToolCalls = append(choice.ToolCalls, &ktmsv1.ToolCall{Id: piece.GetId(), Name: piece.GetName(), Type: piece.GetType()})
		case at > len(choice.ToolCalls):
			f.Errorf("the indexes of calls have a gap: %v", piece)
			return
		case piece.GetId() != "" || piece.GetName() != "" || piece.GetType() != "":
			f.Errorf("a later piece of a call repeats its id, name or type: %v", piece)
		}
		choice.ToolCalls[at].Arguments += piece.GetArguments()
	}
	if c.GetFinishReason() != "" {
		if choice.FinishReason != "" {
			f.Error("a choice finished twice")
		}
		choice.FinishReason = c.GetFinishReason()
	}
}

// checkError holds every error of the suite to what all of them promise.
func (f *fixture) checkError(err error) {
	f.Helper()
	if err == nil {
		return
	}
	var e *vendors.Error
	if !errors.As(err, &e) {
		f.Errorf("error of type %T: %v", err, err)
		return
	}
	if e.Vendor != f.target.Vendor {
		f.Errorf("the error names vendor %q", e.Vendor)
	}
	f.checkSecret(err.Error())
	if strings.ContainsAny(e.Message, "\n<") || len(e.Message) > 2000 {
		f.Errorf("message %q", e.Message)
	}
}

func (f *fixture) checkSecret(text string) {
	f.Helper()
	for _, piece := range []string{Key, Key[:10], Key[len(Key)-10:]} {
		if strings.Contains(strings.ToLower(text), piece) {
			f.Errorf("the key shows in %q", text)
		}
	}
}

// wants checks the kind of an error.
func (f *fixture) wants(err error, kind vendors.Kind) *vendors.Error {
	f.Helper()
	var e *vendors.Error
	if !errors.As(err, &e) {
		f.Fatalf("got %v, want an error of kind %v", err, kind)
	}
	if e.Kind != kind {
		f.Errorf("got %v, want an error of kind %v", err, kind)
	}
	return e
}

// both runs a case for a complete answer and for a stream. call returns the error.
func (f *fixture) both(name string, run func(f *fixture, call func(context.Context) error)) {
	if name != "" {
		name += "/"
	}
	f.Run(name+"unary", func(t *testing.T) {
		f := newFixture(t, f.Subject)
		run(f, func(ctx context.Context) error { _, err := f.generate(ctx, request()); return err })
	})
	f.Run(name+"stream", func(t *testing.T) {
		f := newFixture(t, f.Subject)
		run(f, func(ctx context.Context) error { return f.stream(ctx, request()).err })
	})
}

// reply is the script's answer as a stream.
func (f *fixture) streams(pieces ...string) Reply { return Events(f.Script.StreamType, pieces...) }

// answers is the script's answer in one piece.
func (f *fixture) answers(body string) Reply {
	return Respond(http.StatusOK, body, "Content-Type", f.Script.UnaryType)
}
