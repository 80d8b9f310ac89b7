package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// events spells an answer as the stream that it would have come in, its texts cut into two pieces.
func events(w *wireMessage) []string {
	event := func(kind, members string, args ...any) string {
		return fmt.Sprintf(`{"type":"%s"`+members+"}", append([]any{kind}, args...)...)
	}
	quote := func(s string) string { return string(openaiapi.AppendString(nil, s)) }
	usage, err := json.Marshal(w.Usage)
	if err != nil {
		return nil
	}
	out := []string{event("message_start", `,"message":{"id":%s,"model":%s,"usage":%s}`, quote(w.ID), quote(w.Model), usage), event("ping", "")}
	for i, raw := range w.Content {
		var b wireBlock
		if json.Unmarshal(raw, &b) != nil {
			return nil
		}
		piece := func(kind, member, text string) {
			runes := []rune(text)
			for _, half := range []string{string(runes[:len(runes)/2]), string(runes[len(runes)/2:])} {
				out = append(out, event("content_block_delta", `,"index":%d,"delta":{"type":"%s","%s":%s}`, i, kind, member, quote(half)))
			}
		}
		begin := func(block string) {
			out = append(out, event("content_block_start", `,"index":%d,"content_block":%s`, i, block))
		}
		switch b.Type {
		case "text":
			begin(`{"type":"text","text":""}`)
			piece("text_delta", "text", b.Text)
		case "thinking":
			begin(`{"type":"thinking","thinking":"","signature":""}`)
			piece("thinking_delta", "thinking", b.Thinking)
			piece("signature_delta", "signature", b.Signature)
		case "tool_use":
			begin(fmt.Sprintf(`{"type":"tool_use","id":%s,"name":%s,"input":{}}`, quote(b.ID), quote(b.Name)))
			piece("input_json_delta", "partial_json", arguments(b.Input))
		default:
			begin(string(raw))
		}
		out = append(out, event("content_block_stop", `,"index":%d`, i))
	}
	return append(out, event("message_delta", `,"delta":{"stop_reason":%s,"stop_details":{"explanation":%s}}`, quote(w.StopReason), quote(w.StopDetails.explanation())), event("message_stop", ""))
}

// FuzzDecodeAnswer: an answer in one piece and the same as a stream say the same.
func FuzzDecodeAnswer(f *testing.F) {
	f.Add([]byte(`{"id":"m","type":"message","model":"x","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"Hi"},{"type":"tool_use","id":"a","name":"f","input":{"a":1}}],"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":-2}}`))
	f.Add([]byte(`{"content":[{"type":"redacted_thinking","data":"d"},{"type":"new"},{"type":"tool_use","input":null},{"type":"text","text":"☃"}],"stop_reason":"refusal","stop_details":{"explanation":"no"}}`))
	f.Add([]byte(`{"content":[{"type":"thinking","thinking":"a","signature":"S1"},{"type":"text","text":""},{"type":"thinking","thinking":"b","signature":"S2"},{"type":"tool_use","id":"a","name":"f"}],"stop_reason":"tool_use"}`))
	f.Add([]byte(`{"type":"error","error":{"type":"api_error","message":"oops"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, failed := decode(someTarget, nil, body)
		if (r == nil) == (failed == nil) {
			t.Fatalf("%v and %v", r, failed)
		}
		if failed != nil {
			return
		}
		if _, err := proto.Marshal(r); err != nil {
			t.Fatal(err)
		}
		whole := r.GetChoices()[0]
		for _, c := range whole.GetToolCalls() {
			if c.GetId() == "" || !json.Valid([]byte(c.GetArguments())) {
				t.Fatalf("%v", c)
			}
		}
		if u := r.GetUsage(); u.GetCacheRead()+u.GetCacheWrite()+u.GetCacheWrite_1H() > u.GetInput() || u.GetReasoning() > u.GetOutput() || u.GetOutput() < 0 {
			t.Fatalf("usage %v", u)
		}
		var w wireMessage
		if json.Unmarshal(body, &w) != nil {
			t.Fatal("decoded what is not JSON")
		}
		stream := events(&w)
		if stream == nil || len(w.Content) > maxBlocks {
			return
		}
		got := streamed(t, stream...)
		if !proto.Equal(whole, got.choice) || !proto.Equal(r.GetUsage(), got.usage) {
			t.Fatalf("in one piece %v %v\nstreamed     %v %v", whole, r.GetUsage(), got.choice, got.usage)
		}
	})
}

// FuzzDecodeStream feeds the lines of a text as events.
func FuzzDecodeStream(f *testing.F) {
	f.Add("{\"type\":\"message_start\",\"message\":{\"id\":\"m\"}}\n{\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\"}}\n" +
		"{\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"x\"}}")
	f.Add("{\"type\":\"content_block_start\",\"content_block\":{\"type\":\"thinking\",\"signature\":\"s\"}}\n{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{}}\n{\"type\":\"message_delta\",\"usage\":{\"output_tokens\":3}}")
	f.Add("{\"error\":1}")
	f.Fuzz(func(t *testing.T, text string) {
		got := join(t, strings.Split(text, "\n")...)
		if got.failed == nil && got.choice.GetFinishReason() == "" {
			t.Fatal("a clean end without a finish reason")
		}
	})
}

// FuzzOpenThoughts: whatever a caller sends for a state, what goes out is JSON.
func FuzzOpenThoughts(f *testing.F) {
	f.Add([]byte(`[{"type":"thinking","thinking":"t","signature":"s"},3,"toolu_1",{"type":"redacted_thinking","data":"d"}]`), "text")
	f.Add([]byte(`[1,9223372036854775807,{"type":"thinking","thinking":"x","signature":"y"}]`), "hello")
	f.Add([]byte(`[{"type":"thinking","thinking":"x","signature":"y","cache_control":{"type":"ephemeral"}}]`), "hello")
	f.Fuzz(func(t *testing.T, state []byte, text string) {
		m := say(assistant, strings.ToValidUTF8(text, ""))
		m.Opaque = vendors.SealOpaque(vendors.Anthropic, someTarget.Model, state)
		out, failed := encode(someTarget, &request{Messages: []*ktmsv1.Message{say(user, "u"), m, say(user, "v")}}, false)
		if failed != nil || !json.Valid(out.body) {
			t.Fatalf("%v %v", out, failed)
		}
	})
}
