package servertest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/vendortest"
)

// talker is a vendor that the conversation is held with.
type talker struct {
	vendor, model string
	script        vendortest.Script
}

func talkers() []talker {
	return []talker{
		{vendors.OpenAI, "gpt-6.2-sol", vendortest.OpenAI()},
		{vendors.Azure, "my-deployment", vendortest.OpenAI()},
		{vendors.DeepSeek, "deepseek-flash", vendortest.OpenAI()},
		{vendors.Groq, "openai/gpt-oss-120b", vendortest.OpenAI()},
		{vendors.Mistral, "mistral-medium-3-5", vendortest.OpenAI()},
		{vendors.Ollama, "qwen3", vendortest.OpenAI()},
		{vendors.Anthropic, "claude-sonnet-5-5", vendortest.Anthropic()},
		{vendors.Google, "gemini-4-argon", vendortest.Gemini()},
		{vendors.Bedrock, "eu.anthropic.claude-sonnet-5-5-v1:0", vendortest.Bedrock("eu-west-3")},
	}
}

const (
	tinyPNG   = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	talkTools = `[{"type":"function","function":{"name":"get_weather","description":"Weather of a city","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}},` +
		`{"type":"function","function":{"name":"get_time","description":"The time"}}]`
	talkSchema = `{"type":"json_schema","json_schema":{"name":"report","strict":true,"schema":{"type":"object","properties":{"summary":{"type":"string"},"degrees":{"type":"integer"}},"required":["summary","degrees"],"additionalProperties":false}}}`
)

// turn is what the client adds, and what the vendor then says.
type turn struct {
	// says are messages; %ID0% and %ID1% stand for the ids of the last calls.
	says   []string
	format string
	answer vendortest.Answer
}

func talk() []turn {
	usage := func(in, out int64) *ktmsv1.TokensUsage { return &ktmsv1.TokensUsage{Input: in, Output: out} }
	return []turn{
		{says: []string{
			`{"role":"system","content":"Be brief."}`,
			`{"role":"user","content":[{"type":"text","text":"Where is this, and what is the weather there?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + tinyPNG + `"}}]}`,
		}, answer: vendortest.Answer{ID: "a1", Model: "m", Signature: "c2lnbmF0dXJlLW9uZQ==", FinishReason: "tool_calls", Usage: usage(100, 20), Calls: []vendortest.ToolCall{
			{ID: "callnum01", Name: "get_weather", Arguments: []string{`{"ci`, `ty":"Par`, `is"}`}}, {ID: "callnum02", Name: "get_time", Arguments: []string{`{}`}}}}},
		{says: []string{ // in reverse
			`{"role":"tool","tool_call_id":"%ID1%","content":"noon"}`, `{"role":"tool","tool_call_id":"%ID0%","content":"{\"degrees\":21}"}`,
		}, answer: vendortest.Answer{ID: "a2", Model: "m", Text: []string{"It is noon and ", "21 degrees in Paris ☀."}, FinishReason: "stop", Usage: usage(150, 10)}},
		{says: []string{`{"role":"user","content":"And in Rome?"}`}, answer: vendortest.Answer{ID: "a3", Model: "m", Signature: "c2lnbmF0dXJlLXR3bw==",
			Reasoning: []string{"They want ", "Rome."}, Text: []string{"One moment."}, FinishReason: "tool_calls", Usage: usage(170, 30),
			Calls: []vendortest.ToolCall{{ID: "callnum03", Name: "get_weather", Arguments: []string{`{"city":`, `"Rome"}`}}}}},
		{says: []string{`{"role":"tool","tool_call_id":"%ID0%","content":"25"}`},
			answer: vendortest.Answer{ID: "a4", Model: "m", Text: []string{"25 degrees."}, FinishReason: "stop", Usage: usage(200, 5)}},
		{says: []string{`{"role":"user","content":"Sum it up."}`}, format: talkSchema,
			answer: vendortest.Answer{ID: "a5", Model: "m", Text: []string{`{"summary":"warm",`, `"degrees":25}`}, FinishReason: "stop", Usage: usage(220, 12)}},
	}
}

// heard is what the client sees of one answer, with ids, model and vendor left out.
type heard struct {
	Content, Reasoning, Finish string
	Calls                      []string
	Input, Output              int64
}

// The same conversation of five turns gives the same results whatever vendor is behind, in one piece and as a stream,
// and each vendor takes every turn of it.
func TestAConversationIsTheSameWithEveryVendor(t *testing.T) {
	var want []heard
	for _, who := range talkers() {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%v", who.vendor, stream), func(t *testing.T) {
				got := converse(t, who, stream)
				if want == nil {
					want = got
					if len(got) != 5 || got[0].Calls == nil || got[4].Content != `{"summary":"warm","degrees":25}` {
						t.Fatalf("the first conversation: %+v", got)
					}
				}
				for i := range want {
					if i >= len(got) || !reflect.DeepEqual(got[i], want[i]) {
						t.Errorf("turn %d:\n got %+v\nwant %+v", i+1, got[i], want[i])
					}
				}
			})
		}
	}
}

func converse(t *testing.T, who talker, stream bool) []heard {
	up := vendortest.NewUpstream(t)
	s := servertest.Start(t, servertest.Defaults(t))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{{
		Id: who.model, Vendor: who.vendor, Endpoint: up.URL, Enabled: true, Capabilities: []string{"vision"}, MaxOutputTokens: 4096}}})
	var history []json.RawMessage
	var out []heard
	var ids []string
	for i, step := range talk() {
		for _, message := range step.says {
			for n, id := range ids {
				message = strings.ReplaceAll(message, fmt.Sprintf("%%ID%d%%", n), id)
			}
			history = append(history, json.RawMessage(message))
		}
		if stream {
			up.Reply(vendortest.Events(who.script.StreamType, who.script.Stream(step.answer).All()...))
		} else {
			up.Reply(vendortest.Respond(http.StatusOK, who.script.Body(step.answer), "Content-Type", who.script.UnaryType))
		}
		body := map[string]any{"model": who.model, "messages": history, "tools": json.RawMessage(talkTools), "stream": stream}
		if stream {
			body["stream_options"] = map[string]any{"include_usage": true}
		}
		if step.format != "" {
			body["response_format"] = json.RawMessage(step.format)
		}
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		code, _, answer := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, string(text))
		if code != 200 {
			t.Fatalf("turn %d: %d %s", i+1, code, answer)
		}
		if wrong := who.script.Check(up.Await(i)); wrong != "" {
			t.Errorf("turn %d: the vendor would refuse it: %s\n%s", i+1, wrong, up.Await(i).Body)
		}
		var message map[string]any
		var h heard
		if stream {
			message, h = assemble(t, answer)
		} else {
			message, h = whole(t, answer)
		}
		ids = nil
		calls, _ := message["tool_calls"].([]any)
		for _, call := range calls {
			ids = append(ids, call.(map[string]any)["id"].(string))
		}
		kept, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		history = append(history, kept)
		out = append(out, h)
	}
	if n := len(up.Calls()); n != len(talk()) {
		t.Errorf("%d vendor calls for %d turns", n, len(talk()))
	}
	// State that a vendor signed comes back to it byte by byte.
	if who.script.Signed {
		last := string(up.Await(4).Body)
		for _, signature := range []string{"c2lnbmF0dXJlLW9uZQ==", "c2lnbmF0dXJlLXR3bw=="} {
			if !strings.Contains(last, signature) {
				t.Errorf("signature %s is lost in %s", signature, last)
			}
		}
	}
	return out
}

func whole(t *testing.T, text string) (map[string]any, heard) {
	t.Helper()
	var r struct {
		Choices []struct {
			Message      map[string]any
			FinishReason string `json:"finish_reason"`
		}
		Usage *wireUsage
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil || len(r.Choices) != 1 || r.Usage == nil {
		t.Fatalf("%v: %s", err, text)
	}
	return r.Choices[0].Message, hearing(r.Choices[0].Message, r.Choices[0].FinishReason, r.Usage)
}

type wireUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
}

func hearing(m map[string]any, finish string, u *wireUsage) heard {
	h := heard{Finish: finish, Input: u.Prompt, Output: u.Completion}
	h.Content, _ = m["content"].(string)
	h.Reasoning, _ = m["reasoning_content"].(string)
	calls, _ := m["tool_calls"].([]any)
	for _, call := range calls {
		f := call.(map[string]any)["function"].(map[string]any)
		h.Calls = append(h.Calls, fmt.Sprint(f["name"], f["arguments"]))
	}
	return h
}

// assemble puts a stream together as the official clients do, further members included.
func assemble(t *testing.T, text string) (map[string]any, heard) {
	t.Helper()
	message := map[string]any{"role": "assistant", "content": nil}
	var calls []map[string]any
	var finish string
	var u *wireUsage
	add := func(to map[string]any, name string, piece any) {
		if piece, ok := piece.(string); ok {
			before, _ := to[name].(string)
			to[name] = before + piece
		}
	}
	done := 0
	for lines := bufio.NewScanner(bytes.NewReader([]byte(text))); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			done++
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta        map[string]any
				FinishReason string `json:"finish_reason"`
			}
			Usage *wireUsage
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if chunk.Usage != nil {
			u = chunk.Usage
		}
		for _, c := range chunk.Choices {
			if c.FinishReason != "" {
				finish = c.FinishReason
			}
			for name, piece := range c.Delta {
				if !slices.Contains([]string{"role", "tool_calls"}, name) {
					add(message, name, piece)
				}
			}
			deltas, _ := c.Delta["tool_calls"].([]any)
			for _, d := range deltas {
				d := d.(map[string]any)
				at := int(d["index"].(float64))
				if at == len(calls) {
					calls = append(calls, map[string]any{"id": d["id"], "type": d["type"], "function": map[string]any{}})
				}
				for name, piece := range d["function"].(map[string]any) {
					add(calls[at]["function"].(map[string]any), name, piece)
				}
			}
		}
	}
	if done != 1 || u == nil {
		t.Fatalf("%d times [DONE], usage %v in %s", done, u, text)
	}
	if calls != nil {
		list := make([]any, 0, len(calls))
		for _, c := range calls {
			list = append(list, c)
		}
		message["tool_calls"] = list
	}
	return message, hearing(message, finish, u)
}
