package vendortest

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// Meanings of a finish reason beside the four of ktms.v1, for Script.FinishReasons.
const (
	// MeansBlocked: the answer is a refusal by policy, so that the next candidate is tried; a stream that has said
	// something ends with content_filter instead.
	MeansBlocked = "blocked"
	// MeansBroken: the vendor failed.
	MeansBroken = "broken"
)

var reasonCases = []testCase{
	{name: "finish reasons", needs: func(s *Script) bool { return s.FinishReasons != nil }, run: func(f *fixture) {
		for raw, ours := range f.Script.FinishReasons {
			f.Run(raw, func(t *testing.T) { newFixture(t, f.Subject).checkReason(raw, ours) })
		}
		f.Run("unknown", func(t *testing.T) { newFixture(t, f.Subject).checkReason("brand_new_reason", "stop") })
	}},
	{name: "waits", run: func(f *fixture) {
		for _, w := range f.Script.Waits {
			f.both(w.Name, func(f *fixture, call func(context.Context) error) {
				f.up.Reply(Respond(w.Status, w.Body, w.Header...))
				err := call(f.Context())
				if e, ok := err.(*vendors.Error); !ok || e.RetryAfter != w.Want {
					f.Errorf("%v, want a wait of %v", err, w.Want)
				}
			})
		}
	}},
	{name: "cached input", run: func(f *fixture) {
		a := hello()
		a.Usage = &ktmsv1.TokensUsage{Input: 1000, Output: 70, CacheRead: 600}
		f.checkAnswer(a)
		if f.Script.CacheWrites {
			a.Usage.CacheWrite = 200
			f.checkAnswer(a)
		}
		if f.Script.CacheWrites1H {
			a.Usage.CacheWrite_1H = 100
			f.checkAnswer(a)
		}
	}},
	{name: "a refusal", needs: func(s *Script) bool { return s.Refusals }, run: func(f *fixture) {
		a := hello()
		a.Text, a.Refusal, a.FinishReason = nil, "I cannot help with that.", "content_filter"
		f.up.Reply(f.answers(f.Script.Body(a)), f.streams(f.Script.Stream(a).All()...))
		answer, err := f.generate(f.Context(), request())
		if err != nil || answer.Response.GetChoices()[0].GetRefusal() != a.Refusal {
			f.Errorf("%v %v", answer, err)
		}
		if r := f.stream(f.Context(), request()); r.err != nil || r.first().GetRefusal() != a.Refusal {
			f.Errorf("%v %v", r.first(), r.err)
		}
	}},
	{name: "the stream says what the whole answer says", run: func(f *fixture) {
		for i, a := range []Answer{hello(), calling(1), calling(3)} {
			f.Run(fmt.Sprint(i), func(t *testing.T) {
				f := newFixture(t, f.Subject)
				f.up.Reply(f.answers(f.Script.Body(a)), f.streams(f.Script.Stream(a).All()...))
				answer, err := f.generate(f.Context(), request())
				r := f.stream(f.Context(), request())
				if err != nil || r.err != nil {
					f.Fatal(err, r.err)
				}
				whole, streamed := answer.Response.GetChoices()[0], r.first()
				whole.RawFinishReason, whole.ExtraJson, whole.Opaque = "", "", ""
				if !proto.Equal(whole, streamed) || !proto.Equal(answer.Response.GetUsage(), r.usage) {
					f.Errorf("whole %v %v\nstreamed %v %v", whole, answer.Response.GetUsage(), streamed, r.usage)
				}
			})
		}
	}},
}

func (f *fixture) checkReason(raw, ours string) {
	a := hello()
	a.RawFinishReason, a.FinishReason = raw, ours
	wantRaw := raw
	switch raw {
	case "stop", "length", "tool_calls", "content_filter":
		wantRaw = ""
	}
	f.up.Reply(f.answers(f.Script.Body(a)), f.streams(f.Script.Stream(a).All()...))
	answer, err := f.generate(f.Context(), request())
	r := f.stream(f.Context(), request())
	switch ours {
	case MeansBlocked:
		f.wants(err, vendors.Blocked)
		if r.err == nil && r.first().GetFinishReason() != "content_filter" {
			f.Errorf("stream: %v", r.first())
		} else if r.err != nil {
			f.wants(r.err, vendors.Blocked)
		}
		return
	case MeansBroken:
		f.wants(err, vendors.Unavailable)
		f.wants(r.err, vendors.Unavailable)
		return
	}
	if err != nil || r.err != nil {
		f.Fatal(err, r.err)
	}
	if c := answer.Response.GetChoices()[0]; c.GetFinishReason() != ours || c.GetRawFinishReason() != wantRaw {
		f.Errorf("unary: %q, raw %q", c.GetFinishReason(), c.GetRawFinishReason())
	}
	streamedRaw := ""
	for _, c := range r.chunks {
		streamedRaw += c.GetRawFinishReason()
	}
	if got := r.first().GetFinishReason(); got != ours || streamedRaw != wantRaw {
		f.Errorf("stream: %q, raw %q", got, streamedRaw)
	}
}
