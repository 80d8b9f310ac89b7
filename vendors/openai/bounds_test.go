package openai

import (
	"fmt"
	"strings"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/vendortest"
)

// TestMaxAnswer: nobody's answer or event is longer than allowed, in whichever form it comes.
func TestMaxAnswer(t *testing.T) {
	const most = 4096
	text := strings.Repeat("a", most)
	event := `data: {"choices":[{"delta":{"content":"` + text + `"}}]}` + "\n\n"
	for name, reply := range map[string]vendortest.Reply{
		"an answer":               vendortest.Respond(200, `{"choices":[{"message":{"content":"`+text+`"},"finish_reason":"stop"}]}`),
		"an event":                vendortest.Respond(200, event, "Content-Type", "text/event-stream"),
		"an event without an end": vendortest.Respond(200, "data: "+text, "Content-Type", "text/event-stream"),
	} {
		up := vendortest.NewUpstream(t)
		up.Reply(reply)
		v := New(Options{MaxAnswer: most})
		t.Cleanup(v.CloseIdleConnections)
		target := vendors.Target{Vendor: vendors.OpenAI, BaseURL: up.URL}
		s := read(t, v, target, simple())
		_, err := v.Generate(t.Context(), target, simple())
		for _, err := range []error{s.err, err} {
			if e, ok := err.(*vendors.Error); !ok || e.Kind != vendors.Unavailable {
				t.Errorf("%s: %v", name, err)
			}
		}
		if s.text != "" {
			t.Errorf("%s: a part of it was passed on", name)
		}
	}
}

// TestMembersOfAStreamAreBounded: a server that makes up a new one with every event is not remembered for ever.
func TestMembersOfAStreamAreBounded(t *testing.T) {
	s := newStream(someTarget, 1)
	for i := range 4 * maxExtra {
		if _, failed := s.take("", fmt.Appendf(nil, `{"id":"i","x%d":[1],"same":%d,"choices":[]}`, i, i)); failed != nil {
			t.Fatal(failed)
		}
	}
	large := strings.Repeat("y", maxExtraBytes/4)
	for i := range 8 {
		if _, failed := s.take("", fmt.Appendf(nil, `{"id":"i","same":"%d%s","choices":[]}`, i, large)); failed != nil {
			t.Fatal(failed)
		}
		if _, failed := s.take("", fmt.Appendf(nil, `{"id":"i","x%d":"%s","choices":[]}`, i, large)); failed != nil {
			t.Fatal(failed)
		}
	}
	size := 0
	for _, m := range s.extra {
		size += len(m.Value)
	}
	if len(s.extra) > maxExtra || size > maxExtraBytes || size != s.extraBytes {
		t.Errorf("%d members of %d bytes are kept, %d are counted", len(s.extra), size, s.extraBytes)
	}
	if got := string(s.extra.Get("same")); !strings.HasPrefix(got, `"7`) {
		t.Errorf("a member that there was room for is %.10s", got)
	}
}

// TestVectorsOfNothing: an answer within its bytes that is nothing but values would take thirty times the room.
func TestVectorsOfNothing(t *testing.T) {
	const inputs = 16 // may have two million bytes
	for name, value := range map[string]string{"objects": "{},", "numbers": "1,"} {
		for _, vendor := range []string{vendors.OpenAI, vendors.Local} {
			up := vendortest.NewUpstream(t)
			up.Reply(vendortest.Respond(200, `{"data":[`+strings.TrimSuffix(strings.Repeat(value, 300_000), ",")+`]}`))
			_, err := newVendor(t).Embed(t.Context(), vendors.Target{Vendor: vendor, Model: "m", BaseURL: up.URL},
				&ktmsv1.GetEmbeddingsRequest{Inputs: texts(inputs)})
			if e, ok := err.(*vendors.Error); !ok || e.Kind != vendors.Unsupported || !strings.Contains(e.Message, "more than the values") {
				t.Errorf("%s of %s: %v", name, vendor, err)
			}
		}
	}
}
