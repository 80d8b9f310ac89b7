package vendortest

import (
	"net/http"
	"strings"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

var answerCases = []testCase{
	{name: "text", run: func(f *fixture) { f.checkAnswer(hello()) }},
	{name: "cut by the ceiling", run: func(f *fixture) {
		a := hello()
		a.FinishReason = "length"
		f.checkAnswer(a)
	}},
	{name: "reasoning", needs: func(s *Script) bool { return s.Reasoning }, run: func(f *fixture) {
		a := hello()
		a.Reasoning = []string{"Let me", " think."}
		if !f.Script.ReasoningUncounted {
			a.Usage.Reasoning = 3
		}
		f.checkAnswer(a)
	}},
	{name: "one tool call", run: func(f *fixture) { f.checkAnswer(calling(1)) }},
	{name: "three tool calls", run: func(f *fixture) { f.checkAnswer(calling(3)) }},
	{name: "text and a tool call", run: func(f *fixture) {
		a := calling(1)
		a.Text = []string{"Let me ", "look."}
		f.checkAnswer(a)
	}},
	{name: "no usage", run: func(f *fixture) {
		a := hello()
		a.Usage = nil
		f.checkAnswer(a)
	}},
	{name: "request id", run: func(f *fixture) {
		f.up.Reply(func(x *Exchange) {
			x.Start(http.StatusOK, "Content-Type", f.Script.UnaryType, "X-Request-Id", "req-1")
			x.Write(f.Script.Body(hello()))
		}, func(x *Exchange) {
			x.Start(http.StatusOK, "Content-Type", f.Script.StreamType, "X-Request-Id", "req-2")
			x.Write(f.Script.Stream(hello()).All()...)
		})
		answer, err := f.generate(f.Context(), request())
		if err != nil || answer.Head.RequestID != "req-1" {
			f.Errorf("%+v %v", answer, err)
		}
		if r := f.stream(f.Context(), request()); r.err != nil || r.head.RequestID != "req-2" {
			f.Errorf("%+v", r)
		}
	}},
	{name: "the head comes at once", run: func(f *fixture) {
		released := make(chan struct{})
		f.up.Reply(func(x *Exchange) {
			x.Start(http.StatusOK, "Content-Type", f.Script.StreamType)
			x.Wait(released)
			x.Write(f.Script.Stream(hello()).All()...)
		})
		r := f.collect(f.Context(), request(), func(e vendors.Event) bool {
			if e.Head != nil {
				close(released)
			}
			return true
		})
		f.checkStream(r, hello())
	}},
	{name: "each piece comes at once", run: func(f *fixture) {
		stream := f.Script.Stream(hello())
		seen := make(chan struct{}, 100)
		f.up.Reply(func(x *Exchange) {
			x.Start(http.StatusOK, "Content-Type", f.Script.StreamType)
			x.Write(stream.Preamble...)
			for _, piece := range stream.Content {
				x.Write(piece)
				x.Wait(seen)
			}
			x.Write(stream.Finish...)
			x.Write(stream.Usage...)
			x.Write(stream.End...)
		})
		r := f.collect(f.Context(), request(), func(e vendors.Event) bool {
			if e.Chunk.GetDelta() != "" {
				seen <- struct{}{}
			}
			return true
		})
		f.checkStream(r, hello())
	}},
	{name: "usage long after the finish", needs: func(s *Script) bool { return len(s.Stream(hello()).Usage) > 0 }, run: func(f *fixture) {
		stream := f.Script.Stream(hello())
		finished := make(chan struct{})
		f.up.Reply(func(x *Exchange) {
			x.Start(http.StatusOK, "Content-Type", f.Script.StreamType)
			x.Write(stream.Preamble...)
			x.Write(stream.Content...)
			x.Write(stream.Finish...)
			x.Wait(finished)
			x.Write(stream.Usage...)
			x.Write(stream.End...)
		})
		r := f.collect(f.Context(), request(), func(e vendors.Event) bool {
			if e.Chunk.GetFinishReason() != "" {
				close(finished)
			}
			return true
		})
		f.checkStream(r, hello())
	}},
	{name: "byte by byte", run: func(f *fixture) {
		f.up.Reply(func(x *Exchange) {
			x.Start(http.StatusOK, "Content-Type", f.Script.StreamType)
			x.Trickle(f.Script.Stream(calling(2)).All()...)
		}, func(x *Exchange) {
			x.Start(http.StatusOK, "Content-Type", f.Script.UnaryType)
			x.Trickle(f.Script.Body(calling(2)))
		})
		f.checkStream(f.stream(f.Context(), request()), calling(2))
		answer, err := f.generate(f.Context(), request())
		f.checkUnary(answer, err, calling(2))
	}},
	{name: "all at once", run: func(f *fixture) {
		f.up.Reply(f.streams(strings.Join(f.Script.Stream(calling(2)).All(), "")))
		f.checkStream(f.stream(f.Context(), request()), calling(2))
	}},
	{name: "large events", run: func(f *fixture) {
		text := hello()
		text.Text = []string{strings.Repeat("long ", 40<<10)}
		f.checkAnswer(text)
	}},
	{name: "huge events", run: func(f *fixture) {
		huge := calling(1)
		huge.Calls[0].Arguments = []string{`{"data":"`, strings.Repeat("x", 5<<20), `"}`}
		f.checkAnswer(huge)
	}},
	{name: "carriage returns, comments, blank lines", needs: func(s *Script) bool { return s.SSE }, run: func(f *fixture) {
		plain := f.Script.Stream(calling(2)).All()
		noisy := "\uFEFF: hello\r\n\r\n\r\n" + strings.ReplaceAll(strings.Join(plain, ": ping\n\n\n"), "\n", "\r\n")
		f.up.Reply(f.streams(noisy))
		f.checkStream(f.stream(f.Context(), request()), calling(2))
	}},
	{name: "the end may be missing, or come twice", needs: func(s *Script) bool { return s.SSE }, run: func(f *fixture) {
		stream := f.Script.Stream(hello())
		all := stream.All()
		f.up.Reply(
			f.streams(all[:len(all)-len(stream.End)]...),
			f.streams(append(all, stream.End...)...),
			f.streams(strings.TrimRight(strings.Join(all, ""), "\n")),
		)
		for range 3 {
			f.checkStream(f.stream(f.Context(), request()), hello())
		}
	}},
	{name: "the body ends after the stream", run: func(f *fixture) {
		for range 2 {
			finished := make(chan struct{})
			f.up.Reply(func(x *Exchange) {
				x.Start(http.StatusOK, "Content-Type", f.Script.StreamType)
				x.Write(f.Script.Stream(hello()).All()...)
				x.Wait(finished)
			})
			r := f.collect(f.Context(), request(), func(e vendors.Event) bool {
				if e.Chunk.GetFinishReason() != "" {
					close(finished)
				}
				return true
			})
			f.checkStream(r, hello())
		}
		if f.up.Await(0).Conn != f.up.Await(1).Conn {
			f.Error("the second call took a new connection")
		}
	}},
	{name: "one connection serves call after call", run: func(f *fixture) {
		for range 3 {
			f.up.Reply(f.streams(f.Script.Stream(hello()).All()...), f.answers(f.Script.Body(hello())))
		}
		for range 3 {
			f.checkStream(f.stream(f.Context(), request()), hello())
			answer, err := f.generate(f.Context(), request())
			f.checkUnary(answer, err, hello())
		}
		conns := map[string]bool{}
		for _, call := range f.up.Calls() {
			conns[call.Conn] = true
		}
		if len(conns) != 1 {
			f.Errorf("6 calls took %d connections", len(conns))
		}
	}},
}

// calling is an answer with tool calls.
func calling(n int) Answer {
	a := Answer{ID: "answer-2", Model: "model-1", FinishReason: "tool_calls", Usage: &ktmsv1.TokensUsage{Input: 30, Output: 9}}
	for i := range n {
		number := string(rune('1' + i))
		a.Calls = append(a.Calls, ToolCall{ID: "callnum0" + number, Name: "get_weather_" + number,
			Arguments: []string{`{"city"`, `:"Paris\n☃"`, `,"n":` + number + `}`}})
	}
	return a
}

// checkAnswer lets the upstream give an answer in both ways, and checks that it arrives.
func (f *fixture) checkAnswer(want Answer) {
	f.Helper()
	f.up.Reply(f.answers(f.Script.Body(want)), f.streams(f.Script.Stream(want).All()...))
	answer, err := f.generate(f.Context(), request())
	f.checkUnary(answer, err, want)
	f.checkStream(f.stream(f.Context(), request()), want)
}

func (f *fixture) checkUnary(answer *vendors.Answer, err error, want Answer) {
	f.Helper()
	if err != nil {
		f.Error(err)
		return
	}
	r := answer.Response
	if len(r.GetChoices()) != 1 {
		f.Fatalf("%d choices", len(r.GetChoices()))
	}
	f.checkChoice(r.GetChoices()[0], want)
	if !proto.Equal(r.GetUsage(), want.Usage) {
		f.Errorf("usage %v, want %v", r.GetUsage(), want.Usage)
	}
	if f.Script.Nameless {
		want.ID, want.Model = "", ""
	}
	if r.GetVendorResponseId() != want.ID || r.GetVendorModel() != want.Model {
		f.Errorf("id %q, model %q", r.GetVendorResponseId(), r.GetVendorModel())
	}
}

func (f *fixture) checkStream(r *result, want Answer) {
	f.Helper()
	if r.err != nil {
		f.Error(r.err)
		return
	}
	if r.head == nil {
		f.Error("no head")
	}
	if len(r.answers) != 1 {
		f.Errorf("%d choices", len(r.answers))
	}
	f.checkChoice(r.first(), want)
	if !proto.Equal(r.usage, want.Usage) {
		f.Errorf("usage %v, want %v", r.usage, want.Usage)
	}
	if f.Script.Nameless {
		want.ID, want.Model = "", ""
	}
	var id, model string
	for _, c := range r.chunks {
		id, model = id+c.GetVendorResponseId(), model+c.GetVendorModel()
	}
	if id != want.ID || model != want.Model { // concatenated: each is to be said once
		f.Errorf("id %q, model %q", id, model)
	}
}

func (f *fixture) checkChoice(got *ktmsv1.Choice, want Answer) {
	f.Helper()
	if text := strings.Join(want.Text, ""); got.GetText() != text {
		f.Errorf("text %.200q, want %.200q", got.GetText(), text)
	}
	if reasoning := strings.Join(want.Reasoning, ""); got.GetReasoning() != reasoning {
		f.Errorf("reasoning %q, want %q", got.GetReasoning(), reasoning)
	}
	if got.GetFinishReason() != want.FinishReason {
		f.Errorf("finish reason %q, want %q", got.GetFinishReason(), want.FinishReason)
	}
	if len(got.GetToolCalls()) != len(want.Calls) {
		f.Fatalf("%d calls, want %d", len(got.GetToolCalls()), len(want.Calls))
	}
	for i, c := range got.GetToolCalls() {
		w := want.Calls[i]
		if c.GetId() != w.ID || c.GetName() != w.Name || c.GetArguments() != strings.Join(w.Arguments, "") || c.GetType() != "function" {
			f.Errorf("call %d: %.300v", i, c)
		}
	}
}
