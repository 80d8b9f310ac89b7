package bedrock

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

const (
	stopped  = `{"stopReason":"end_turn"}`
	metadata = `{"usage":{"inputTokens":9,"outputTokens":2,"totalTokens":11}}`
)

func textEvent(text string) event {
	return event{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":` + quoted(text) + `}}`}
}

func callEvent(index int, id, name string) event {
	return event{"contentBlockStart", `{"contentBlockIndex":` + strconv.Itoa(index) + `,"start":{"toolUse":{` + id + `"name":` + quoted(name) + `}}}`}
}

// frames is the body of a stream.
func frames(t testing.TB, events ...event) []byte {
	var body []byte
	for _, e := range events {
		body = append(body, e.frame(t)...)
	}
	return body
}

// exception is an error as an event.
func exception(t testing.TB, kind, payload string) []byte {
	m := eventstream.Message{Payload: []byte(payload)}
	m.Headers.Set(":message-type", eventstream.StringValue("exception"))
	m.Headers.Set(":exception-type", eventstream.StringValue(kind))
	m.Headers.Set(":content-type", eventstream.StringValue("application/json"))
	var out bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&out, m); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// streamedBody is what becomes of the bytes of a stream.
func streamedBody(t testing.TB, body []byte) ([]*ktmsv1.GenerateTextChunk, error) {
	var chunks []*ktmsv1.GenerateTextChunk
	for e, err := range New(Options{Transport: &carrier{body: body}}).Stream(t.Context(), target(testClaude), requested(t, hello)) {
		if err != nil {
			return chunks, err
		}
		if e.Chunk != nil {
			chunks = append(chunks, e.Chunk)
		}
	}
	return chunks, nil
}

// TestUsageOfFailures: what an answer of no use has cost is told, since the vendor bills it.
func TestUsageOfFailures(t *testing.T) {
	counted := strings.TrimPrefix(metadata, "{")
	for name, body := range map[string]string{
		"blocked":         `{"output":{"message":{"content":[]}},"stopReason":"guardrail_intervened",` + counted,
		"malformed":       `{"output":{"message":{"content":[]}},"stopReason":"malformed_tool_use",` + counted,
		"nothing":         `{"output":{"message":{"content":[]}},"stopReason":"",` + counted,
		"no message":      `{"stopReason":"end_turn",` + counted,
		"a nameless call": `{"output":{"message":{"content":[{"toolUse":{"toolUseId":"i","input":{}}}]}},"stopReason":"tool_use",` + counted,
	} {
		_, err := answered(body)
		var e *vendors.Error
		if !errors.As(err, &e) || e.Usage.GetInput() != 9 || e.Usage.GetOutput() != 2 {
			t.Errorf("%s: %+v", name, e)
		}
	}
	for reason, kind := range map[string]vendors.Kind{
		"guardrail_intervened": vendors.Blocked, "content_filtered": vendors.Blocked, "malformed_model_output": vendors.Unavailable, "": vendors.Unavailable,
	} {
		end := event{"messageStop", `{"stopReason":"` + reason + `"}`}
		whole := frames(t, event{"messageStart", `{"role":"assistant"}`}, end)
		for name, c := range map[string]struct {
			rest  []byte
			input int64
		}{
			"counted":               {frames(t, event{"metadata", metadata}), 9},
			"cut":                   {nil, 0},
			"an exception":          {exception(t, "throttlingException", `{"message":"slow"}`), 0},
			"something before it":   {frames(t, textEvent("late"), event{"metadata", metadata}), 9},
			"metadata of no counts": {frames(t, event{"metadata", `{}`}), 0},
		} {
			chunks, err := streamedBody(t, append(bytes.Clone(whole), c.rest...))
			var e *vendors.Error
			if !errors.As(err, &e) || e.Kind != kind || e.Usage.GetInput() != c.input || e.Status != http.StatusOK || len(chunks) > 0 {
				t.Errorf("%s, %s: %+v after %v", reason, name, e, chunks)
			}
		}
	}
}

// TestAfterTheFinish: an answer that ended well stays what it was, whatever comes after it.
func TestAfterTheFinish(t *testing.T) {
	whole := frames(t, textEvent("x"), event{"messageStop", stopped})
	broken := frames(t, event{"metadata", metadata})
	broken[len(broken)-1] ^= 1
	for name, c := range map[string]struct {
		rest  []byte
		input int64
	}{
		"an exception":       {exception(t, "internalServerException", `{"message":"down"}`), 0},
		"garbage":            {broken, 0},
		"half an event":      {broken[:len(broken)/2], 0},
		"content":            {frames(t, textEvent("late"), callEvent(3, `"toolUseId":"i",`, "f"), event{"metadata", metadata}), 9},
		"another end":        {frames(t, event{"messageStop", `{"stopReason":"malformed_tool_use"}`}, event{"metadata", metadata}), 9},
		"a piece of nothing": {frames(t, event{"contentBlockDelta", `{"contentBlockIndex":7,"delta":{"toolUse":{"input":"{"}}}`}, event{"metadata", metadata}), 9},
	} {
		chunks, err := streamedBody(t, append(bytes.Clone(whole), c.rest...))
		got, used := joined(chunks)
		if err != nil || got.GetText() != "x" || got.GetFinishReason() != "stop" || len(got.GetToolCalls()) > 0 || used.GetInput() != c.input {
			t.Errorf("%s: %v %v %v", name, got, used, err)
		}
	}
}

// TestCallsThatSayLittle: a result has to name its call, and arguments are always an object.
func TestCallsThatSayLittle(t *testing.T) {
	chunks, err := streamed(t, callEvent(0, "", "f"), callEvent(1, `"toolUseId":"",`, "g"), event{"messageStop", `{"stopReason":"tool_use"}`})
	pieces, _ := joined(chunks)
	r, unary := answered(`{"output":{"message":{"content":[{"toolUse":{"name":"f","input":{}}},{"toolUse":{"toolUseId":"","name":"g"}}]}},"stopReason":"tool_use"}`)
	if err != nil || unary != nil {
		t.Fatal(err, unary)
	}
	for i, want := range []string{"f", "g"} {
		for _, got := range []*ktmsv1.ToolCall{pieces.GetToolCalls()[i], r.GetChoices()[0].GetToolCalls()[i]} {
			if got.GetId() != "call_unnamed_"+strconv.Itoa(i) || got.GetName() != want || got.GetArguments() != "{}" {
				t.Error(got)
			}
		}
	}
	if _, err := streamed(t, callEvent(0, `"toolUseId":"i",`, "")); err == nil {
		t.Error("a call without a name passes")
	}
}

// TestManyBlocks: what is remembered of an answer is bounded.
func TestManyBlocks(t *testing.T) {
	var served, thoughts []event
	for i := range maxBlocks + 1 {
		at := strconv.Itoa(i)
		served = append(served, event{"contentBlockStart", `{"contentBlockIndex":` + at + `,"start":{"toolUse":{"toolUseId":"i","name":"f","type":"server_tool_use"}}}`})
		thoughts = append(thoughts, event{"contentBlockDelta", `{"contentBlockIndex":` + at + `,"delta":{"reasoningContent":{"text":"x"}}}`})
	}
	for name, events := range map[string][]event{"the vendor's calls": served, "thoughts": thoughts} {
		if _, err := streamed(t, append(events[:maxBlocks:maxBlocks], event{"messageStop", `{"stopReason":"max_tokens"}`})...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := streamed(t, append(events, event{"messageStop", `{"stopReason":"max_tokens"}`})...); err == nil {
			t.Errorf("%s have no bound", name)
		}
	}
	for name, block := range map[string]string{"calls": `{"toolUse":{"toolUseId":"i","name":"f"}}`, "thoughts": `{"reasoningContent":{"reasoningText":{"text":"x"}}}`} {
		content := strings.Repeat(block+",", maxBlocks) + block
		if _, err := answered(`{"output":{"message":{"content":[` + content + `]}},"stopReason":"end_turn"}`); err == nil {
			t.Errorf("%s of a whole answer have no bound", name)
		}
	}
}

// TestLongThinking: pieces of a thought and texts of an answer are put together in linear time.
func TestLongThinking(t *testing.T) {
	s := newStream(&call{target: target(testClaude)})
	thought := decoded(t, event{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"` + strings.Repeat("x", 200) + `"}}}`})
	start := time.Now()
	for range 200_000 {
		if _, failed := s.take(thought); failed != nil {
			t.Fatal(failed)
		}
	}
	if n := len(s.thoughts[0].text); n != 200*200_000 {
		t.Errorf("%d bytes", n)
	}
	// Copied for each piece, these are 4 TB.
	if took := time.Since(start); took > time.Minute {
		t.Errorf("took %v", took)
	}
}
