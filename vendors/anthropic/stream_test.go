package anthropic

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

const (
	starts  = `{"type":"message_start","message":{"id":"m","model":"x"}}`
	hello   = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hi"}}`
	ends    = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}`
	stopped = `{"type":"message_stop"}`
)

// TestEmptyTextBetweenThoughts: an empty block keeps no thinking from coming back.
func TestEmptyTextBetweenThoughts(t *testing.T) {
	const first, second = `{"type":"thinking","thinking":"a","signature":"S1"}`, `{"type":"thinking","thinking":"b","signature":"S2"}`
	const call = `{"type":"tool_use","id":"toolu_1","name":"f","input":{}}`
	response, failed := decode(someTarget, nil, []byte(`{"stop_reason":"tool_use","content":[`+first+`,{"type":"text","text":""},`+second+`,`+call+`]}`))
	if failed != nil {
		t.Fatal(failed)
	}
	c := response.GetChoices()[0]
	out, _ := encodes(t, someTarget, &request{Tools: function(), Messages: []*ktmsv1.Message{
		say(user, "u"), {Role: assistant, Opaque: c.GetOpaque(), ToolCalls: c.GetToolCalls()}, result("toolu_1", "r")}})
	if !strings.Contains(string(out.body), first+","+second+","+call) {
		t.Errorf("%s", out.body)
	}
}

// TestMadeUpThinking: a state that a caller made up brings nothing out but thinking, and breaks nothing.
func TestMadeUpThinking(t *testing.T) {
	for state, want := range map[string]string{
		`[1,9223372036854775807,{"type":"thinking","thinking":"x","signature":"y"}]`:                           `assistant: thinking text="hello"`,
		`[{"type":"thinking","thinking":"x","signature":"y","cache_control":{"type":"ephemeral"},"text":"z"}]`: `assistant: thinking text="hello"`,
		`[5,{"type":"thinking","thinking":"x","signature":"y"}]`:                                               `assistant: text="hello"`, // ends with thinking
		`[{"type":"tool_use","id":"a","name":"f","input":{}}]`:                                                 `assistant: text="hello"`,
	} {
		m := say(assistant, "hello")
		m.Opaque = vendors.SealOpaque(vendors.Anthropic, someTarget.Model, []byte(state))
		out, w := encodes(t, someTarget, &request{Messages: []*ktmsv1.Message{say(user, "u"), m, say(user, "v")}})
		if got := w.shape(); !strings.Contains(got, want+" |") || strings.Contains(string(out.body), "cache_control") {
			t.Errorf("%s: %s\n%s", state, got, out.body)
		}
	}
}

// TestInputAtTheStart: what the vendor counted of the input is told with the preamble, for streams that never end.
func TestInputAtTheStart(t *testing.T) {
	got := join(t, `{"type":"message_start","message":{"id":"m","usage":{"input_tokens":10,"cache_read_input_tokens":5,"cache_creation_input_tokens":30,`+
		`"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"output_tokens":1}}}`, hello)
	want := &ktmsv1.TokensUsage{Input: 45, CacheRead: 5, CacheWrite: 10, CacheWrite_1H: 20, Estimated: true}
	if got.failed == nil || !proto.Equal(got.begun, want) || got.usage != nil {
		t.Errorf("%v %v %v", got.begun, got.usage, got.failed)
	}
	if got := join(t, `{"type":"message_start","message":{"id":"m","usage":{"input_tokens":0,"output_tokens":0}}}`); got.begun != nil {
		t.Errorf("%v", got.begun)
	}
}

// TestUsageOfFailures: what the vendor counted before it failed is billed.
func TestUsageOfFailures(t *testing.T) {
	got := join(t, starts, `{"type":"message_delta","delta":{},"usage":{"input_tokens":2,"output_tokens":3}}`, `{"type":"error","error":{"type":"api_error","message":"oops"}}`)
	if got.failed == nil || got.failed.Usage.GetOutput() != 3 || got.failed.Usage.GetInput() != 2 {
		t.Errorf("%+v", got.failed)
	}
	if _, failed := decode(someTarget, nil, []byte(`{"content":[],"usage":{"output_tokens":3}}`)); failed == nil || failed.Usage.GetOutput() != 3 {
		t.Errorf("%+v", failed)
	}
}

// TestAfterTheFinish: nothing that follows a finished answer undoes it or adds to it, but for the usage.
func TestAfterTheFinish(t *testing.T) {
	for _, after := range []string{
		`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, `{"type":`, `[]`, starts, hello,
		`{"type":"content_block_delta","index":7,"delta":{"type":"text_delta","text":"x"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a","name":"f"}}`,
	} {
		got := streamed(t, starts, hello, ends, after)
		if got.choice.GetText() != "Hi" || got.choice.GetFinishReason() != "stop" || got.choice.GetToolCalls() != nil || got.usage.GetOutput() != 3 {
			t.Errorf("%s: %v %v", after, got.choice, got.usage)
		}
	}
}

// TestNamelessCalls: a call without a name is none that anybody could answer.
func TestNamelessCalls(t *testing.T) {
	got := join(t, starts, `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","input":{}}}`)
	_, failed := decode(someTarget, nil, []byte(`{"stop_reason":"tool_use","content":[{"type":"tool_use","id":"a","input":{}}]}`))
	for _, failed := range []*vendors.Error{got.failed, failed} {
		if failed == nil || failed.Kind != vendors.Unavailable {
			t.Errorf("%v", failed)
		}
	}
}

// TestEventNames: some servers say what an event is in its name alone.
func TestEventNames(t *testing.T) {
	s := newStream(someTarget, nil)
	text := ""
	for _, event := range [][2]string{
		{"message_start", `{"message":{"id":"m"}}`}, {"content_block_start", `{"index":0,"content_block":{"type":"text","text":""}}`}, {"ping", `{}`},
		{"content_block_delta", `{"index":0,"delta":{"type":"text_delta","text":"Hi"}}`}, {"message_delta", `{"delta":{"stop_reason":"end_turn"}}`}, {"message_stop", `{}`},
	} {
		chunks, failed := s.take(event[0], []byte(event[1]))
		if failed != nil {
			t.Fatal(failed)
		}
		for _, c := range chunks {
			text += c.GetDelta()
		}
	}
	if _, failed := s.end(nil); failed != nil || text != "Hi" || !s.stopped {
		t.Errorf("%q %v", text, failed)
	}
}

// TestManyBlocks: an answer of many blocks takes no time, and one of too many is refused.
func TestManyBlocks(t *testing.T) {
	answer := func(n int) []byte {
		block := `{"type":"text","text":"` + strings.Repeat("x", 64) + `"}`
		return fmt.Appendf(nil, `{"stop_reason":"end_turn","content":[%s]}`, strings.TrimSuffix(strings.Repeat(block+",", n), ","))
	}
	began := time.Now()
	if r, failed := decode(someTarget, nil, answer(maxBlocks)); failed != nil || len(r.GetChoices()[0].GetText()) != maxBlocks*64 || time.Since(began) > time.Minute {
		t.Errorf("%v after %v", failed, time.Since(began))
	}
	if _, failed := decode(someTarget, nil, answer(maxBlocks+1)); failed == nil || failed.Kind != vendors.Unavailable {
		t.Error(failed)
	}
}
