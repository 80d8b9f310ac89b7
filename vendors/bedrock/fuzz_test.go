package bedrock

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

func checkUsage(t *testing.T, u *ktmsv1.TokensUsage) {
	if u.GetInput() < u.GetCacheRead()+u.GetCacheWrite()+u.GetCacheWrite_1H() || u.GetInput() < 0 || u.GetOutput() < 0 || u.GetCacheWrite() < 0 {
		t.Fatalf("usage %v", u)
	}
}

// FuzzDecodeAnswer reads complete answers, and the same again as streams.
func FuzzDecodeAnswer(f *testing.F) {
	f.Add([]byte(okBody))
	f.Add([]byte(`{"output":{"message":{"role":"assistant","content":[{"reasoningContent":{"reasoningText":{"text":"hm","signature":"s"}}},` +
		`{"text":"a"},{"toolUse":{"toolUseId":"i","name":"f","input":{"z":1.50,"a":9007199254740993}}},{"toolUse":{"toolUseId":"j","name":"g"}}]}},` +
		`"stopReason":"tool_use","usage":{"inputTokens":-3,"outputTokens":2,"totalTokens":5,"cacheWriteInputTokens":7,"cacheDetails":[{"ttl":"1h","inputTokens":9}]}}`))
	f.Add([]byte(`{"output":{"message":{"content":[{"video":{}},null,{"toolUse":{"name":"x","input":"y","type":"server_tool_use"}}]}},"stopReason":"brand_new","trace":{"promptRouter":{"invokedModelId":"m"}}}`))
	f.Add([]byte(`{"message":"no"}`))
	f.Add([]byte("{\"output\":{\"message\":{\"content\":[{\"text\":\"\xf8\"},{\"toolUse\":{\"toolUseId\":\"\xf8\",\"name\":\"\xf8\",\"input\":\"\xf8\"}}]}},\"stopReason\":\"\xf8\"}"))
	f.Add([]byte(`{"output":{"message":{"content":[{"toolUse":{"name":"f"}},{"toolUse":{"toolUseId":"","name":"g","input":null}}]}},"stopReason":"tool_use"}`))
	f.Add([]byte(`{"output":{"message":{"content":[]}},"stopReason":"guardrail_intervened","usage":{"inputTokens":1,"outputTokens":-2,"totalTokens":3}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := answered(string(body))
		if (r == nil) == (err == nil) {
			t.Fatalf("%v and %v", r, err)
		}
		if err != nil {
			if _, ok := err.(*vendors.Error); !ok {
				t.Fatalf("%T", err)
			}
			return
		}
		if _, err := proto.Marshal(r); err != nil {
			t.Fatal(err)
		}
		checkUsage(t, r.GetUsage())
		whole := r.GetChoices()[0]
		if whole.GetFinishReason() == "" {
			t.Fatal("no finish reason")
		}
		chunks, err := streamed(t, retold(whole)...)
		if err != nil {
			t.Fatal(err)
		}
		pieces, _ := joined(chunks)
		pieces.Opaque, whole.Opaque = "", ""
		if pieces.RawFinishReason == "" {
			whole.RawFinishReason = ""
		}
		if !proto.Equal(whole, pieces) {
			t.Fatalf("whole    %v\nstreamed %v", whole, pieces)
		}
	})
}

// retold is an answer as the events of a stream.
func retold(c *ktmsv1.Choice) []event {
	out := []event{{"messageStart", `{"role":"assistant"}`}}
	block := 0
	add := func(delta string) {
		out = append(out, event{"contentBlockDelta", `{"contentBlockIndex":` + strconv.Itoa(block) + `,"delta":` + delta + `}`})
	}
	end := func() {
		out = append(out, event{"contentBlockStop", `{"contentBlockIndex":` + strconv.Itoa(block) + `}`})
		block++
	}
	if c.GetReasoning() != "" {
		add(`{"reasoningContent":{"text":` + quoted(c.GetReasoning()) + `}}`)
		end()
	}
	for i, text := 0, c.GetText(); i < len(text); {
		_, size := utf8.DecodeRuneInString(text[i:])
		add(`{"text":` + quoted(text[i:i+size]) + `}`)
		i += size
	}
	end()
	for _, call := range c.GetToolCalls() {
		out = append(out, event{"contentBlockStart", `{"contentBlockIndex":` + strconv.Itoa(block) + `,"start":{"toolUse":{"toolUseId":` +
			quoted(call.GetId()) + `,"name":` + quoted(call.GetName()) + `}}}`})
		add(`{"toolUse":{"input":` + quoted(call.GetArguments()) + `}}`)
		end()
	}
	return append(out, event{"messageStop", `{"stopReason":` + quoted(c.GetRawFinishReason()) + `}`})
}

// FuzzDecodeStream feeds the lines of a text as events: a kind, a space and a payload.
func FuzzDecodeStream(f *testing.F) {
	f.Add("messageStart {\"role\":\"assistant\"}\ncontentBlockDelta {\"delta\":{\"text\":\"x\"}}\nmessageStop {\"stopReason\":\"end_turn\"}\nmetadata {\"usage\":{\"inputTokens\":1}}")
	f.Add("contentBlockStart {\"contentBlockIndex\":4,\"start\":{\"toolUse\":{\"toolUseId\":\"i\",\"name\":\"f\"}}}\ncontentBlockStop {\"contentBlockIndex\":4}\nmessageStop {\"stopReason\":\"tool_use\"}")
	f.Add("contentBlockDelta {\"delta\":{\"toolUse\":{\"input\":\"{\"}}}\ncontentBlockDelta {\"delta\":{\"reasoningContent\":{\"redactedContent\":\"AAA=\"}}}\nbrandNew {}\nmessageStop {}")
	f.Add("contentBlockStart {\"contentBlockIndex\":0,\"start\":{\"toolUse\":{\"name\":\"f\"}}}\nmessageStop {\"stopReason\":\"max_tokens\"}\ncontentBlockDelta {\"delta\":{\"text\":\"late\"}}\nmessageStop {\"stopReason\":\"malformed_tool_use\"}")
	f.Add("contentBlockStart {\"start\":{\"toolUse\":{\"toolUseId\":\"\xf8\",\"name\":\"\xf8\"}}}\ncontentBlockDelta {\"delta\":{\"text\":\"\xf8\"}}\nmessageStop {\"stopReason\":\"\xf8\"}")
	f.Add("metadata {\"usage\":{\"inputTokens\":1}}\nmessageStop {\"stopReason\":\"content_filtered\"}\nmetadata {\"usage\":{\"inputTokens\":2}}")
	f.Fuzz(func(t *testing.T, text string) {
		var events []event
		for line := range strings.SplitSeq(text, "\n") {
			kind, payload, _ := strings.Cut(line, " ")
			if len(kind) > 255 || kind == "" {
				continue
			}
			events = append(events, event{kind, payload})
		}
		chunks, err := streamed(t, events...)
		calls := int32(0)
		finished := 0
		for _, c := range chunks {
			if _, err := proto.Marshal(c); err != nil {
				t.Fatal(err)
			}
			checkUsage(t, c.GetUsage())
			for _, piece := range c.GetToolCallChunks() {
				switch first := piece.GetIndex() == calls; {
				case first && (piece.GetName() == "" || piece.GetType() == ""):
					t.Fatalf("the first piece says too little: %v", piece)
				case first:
					calls++
				case piece.GetIndex() > calls || piece.GetName() != "":
					t.Fatalf("a gap, or a name that is said again: %v", piece)
				}
			}
			if c.GetFinishReason() != "" {
				finished++
			}
		}
		if finished > 1 || err == nil && finished != 1 {
			t.Fatalf("finished %d times, %v", finished, err)
		}
		if _, ok := err.(*vendors.Error); err != nil && !ok {
			t.Fatalf("%T", err)
		}
	})
}

func BenchmarkGenerate(b *testing.B) {
	req := requested(b, hello)
	c := &carrier{body: []byte(okBody)}
	v := New(Options{Transport: c})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Generate(b.Context(), target(testClaude), req); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkClient is what a client of the SDK costs, which each call has of its own.
func BenchmarkClient(b *testing.B) {
	creds, failed := parseKey(target(testClaude))
	if failed != nil {
		b.Fatal(failed)
	}
	b.ReportAllocs()
	for b.Loop() {
		newSDK(creds, "", &exchange{})
	}
}

func TestRawInputIsJSON(t *testing.T) {
	for _, input := range toolInputs([]byte(`{"output":{"message":{"content":[{"toolUse":{"input":{"z":1.50,"a":[1, 2]}}},{"toolUse":{"input":null}},{"text":"x"}]}}}`)) {
		if !json.Valid([]byte(input)) {
			t.Error(input)
		}
	}
}

// FuzzState replays states that a caller may have made up.
func FuzzState(f *testing.F) {
	f.Add("hello", `[1,9223372036854775807,{"type":"thinking","thinking":"x","signature":"y"}]`)
	f.Add("héllo", `[2,{"type":"redacted_thinking","data":"AAH/"},"c","c"]`)
	f.Fuzz(func(t *testing.T, text, state string) {
		req := requested(t, hello)
		req.Messages = append(req.Messages, &ktmsv1.Message{
			Role: ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT, Text: text, ToolCalls: []*ktmsv1.ToolCall{{Id: "c", Name: "f"}},
			Opaque: vendors.SealOpaque(dialect, testClaude, []byte(state)),
		}, &ktmsv1.Message{Role: ktmsv1.MessageRole_MESSAGE_ROLE_TOOL, ToolCallId: "c", Text: "r"})
		encoded, failed := encode(target(testClaude), req)
		if failed != nil {
			t.Fatal(failed)
		}
		said := ""
		for _, block := range encoded.input.Messages[1].Content {
			if b, ok := block.(*types.ContentBlockMemberText); ok {
				said += b.Value
			}
		}
		if strings.Join(strings.Fields(said), "") != strings.Join(strings.Fields(text), "") {
			t.Fatalf("%q became %q", text, said)
		}
	})
}
