package openai

import (
	"testing"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/vendortest"
)

// Old servers answer with function_call, and some put a refusal among the parts of the content.
func TestOldShapesOfAnswers(t *testing.T) {
	up := vendortest.NewUpstream(t)
	up.Reply(
		vendortest.Respond(200, `{"choices":[{"message":{"content":null,"function_call":{"name":"f","arguments":"{\"a\":1}"}},"finish_reason":"function_call"}]}`),
		vendortest.Respond(200, `{"choices":[{"message":{"content":[{"type":"refusal","refusal":"no"}]},"finish_reason":"stop"}]}`),
		vendortest.Respond(200, `data: {"choices":[{"delta":{"function_call":{"name":"f","arguments":"{\"a\""}}}]}`+"\n\n"+
			`data: {"choices":[{"delta":{"function_call":{"arguments":":1}"}},"finish_reason":"function_call"}]}`+"\n\n", "Content-Type", "text/event-stream"),
	)
	to := vendors.Target{Vendor: vendors.OpenAI, BaseURL: up.URL}
	answer, err := newVendor(t).Generate(t.Context(), to, simple())
	if err != nil {
		t.Fatal(err)
	}
	if c := answer.Response.GetChoices()[0]; len(c.GetToolCalls()) != 1 || c.GetToolCalls()[0].GetName() != "f" || c.GetToolCalls()[0].GetId() == "" ||
		c.GetToolCalls()[0].GetArguments() != `{"a":1}` || c.GetExtraJson() != "" || c.GetFinishReason() != "tool_calls" {
		t.Errorf("%v", c)
	}
	if answer, err = newVendor(t).Generate(t.Context(), to, simple()); err != nil || answer.Response.GetChoices()[0].GetRefusal() != "no" ||
		answer.Response.GetChoices()[0].GetText() != "" {
		t.Errorf("%v %v", answer, err)
	}
	arguments := ""
	s := read(t, newVendor(t), to, simple())
	for _, c := range s.chunks {
		for _, piece := range c.GetToolCallChunks() {
			arguments += piece.GetName() + piece.GetArguments()
		}
	}
	if s.err != nil || s.finish != "tool_calls" || arguments != `f{"a":1}` {
		t.Errorf("%+v", s)
	}
}
