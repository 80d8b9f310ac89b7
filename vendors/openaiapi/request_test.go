package openaiapi

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestRequestSurvivesUnchanged(t *testing.T) {
	// Each text is in the encoder's own order, so that decoding and encoding gives it back byte for byte.
	for _, text := range []string{
		`{"model":"m","messages":[]}`,
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"temperature":0,"top_p":0,"top_k":0,"presence_penalty":0,"frequency_penalty":0,"seed":0,"logprobs":false,"top_logprobs":0,"n":1,"parallel_tool_calls":false,"stream":false}`,
		`{"model":"m","messages":[],"max_tokens":0,"max_completion_tokens":9007199254740993,"temperature":0.7,"seed":-9223372036854775808}`,
		`{"model":"m","stop":"END"}`,
		`{"model":"m","stop":["a","\n"]}`,
		`{"model":"m","stop":[]}`,
		`{"model":"m","stop":["a",1]}`,
		`{"model":"m","stop":{"x":1}}`,
		`{"model":"m","temperature":"warm","seed":18446744073709551615,"logprobs":"yes"}`,
		`{"model":"m","logit_bias":{"50256":-100,"7":0.5}}`,
		`{"model":"m","logit_bias":{"50256":"x"}}`,
		`{"model":"m","tools":[],"tool_choice":""}`,
		`{"model":"m","verbosity":"","service_tier":7}`,
		`{"model":"m","stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}}`,
		`{"model":"m","stream_options":{}}`,
		`{"model":"m","response_format":{"type":"json_object"}}`,
		`{"model":"m","response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"b":1,"a":{"maximum":9007199254740993}},"strict":false,"x_new":1}}}`,
		`{"model":"m","response_format":"text"}`,
		`{"model":"m","tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"z":1,"a":2},"strict":true,"more":1},"cache":{"a":1}},{"type":"custom","custom":{"name":"c"}}]}`,
		`{"model":"m","tool_choice":"required"}`,
		`{"model":"m","tool_choice":{"type":"function","function":{"name":"f"}}}`,
		`{"model":"m","tool_choice":{"type":"function","function":{"name":"f"},"x":1}}`,
		`{"model":"m","tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}}`,
		`{"model":"m","x_new":{"a":1,"a":2},"metadata":{"k":"v"},"store":null,"x":12345678901234567890.123456789}`,
		`{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","content":"","tool_call_id":"1"}]}`,
		`{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"1","type":"custom","custom":{"name":"f","input":"x"},"extra_content":{"google":{"thought_signature":"s"}}}]}]}`,
		`{"model":"m","messages":[{"role":"assistant","content":"x","reasoning_content":"why","refusal":"no","name":"n","tool_calls":[],"audio":{"id":"a"}}]}`,
		`{"model":"m","messages":[{"role":"user","content":[]}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":""},{"type":"text","text":"x","prompt_cache_breakpoint":{"mode":"explicit"}},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","detail":"low","x":1}},{"type":"image_url","image_url":"https://e.example/a.png"},{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}},{"type":"file","file":{"file_id":"f"}},{"type":"file","file":{"file_data":"d","filename":"a.pdf"}},{"type":"refusal","refusal":"no"},{"type":"video_url","video_url":{"url":"u"},"a":1}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"a":1,"type":"text"},{"text":"x","type":"text","refusal":"y"},{"type":"text","text":null},{"type":"file","file":{"filename":"x"}},{"type":"image_url","image_url":7}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"x","name":"","reasoning_content":""}]}`,
		`{"model":"m","messages":[{"role":"user","content":"é ☃ 😀 \u0000 \u001f \" \\ / <>& ` + "\u2028" + `"}]}`,
	} {
		r, err := DecodeChatRequest([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := string(r.AppendJSON(nil)); got != text {
			t.Errorf("lost something:\n in  %s\n out %s", text, got)
		}
	}
}

func TestRequestFields(t *testing.T) {
	r, err := DecodeChatRequest([]byte(` { "max_tokens" : 3.0 , "stop" : "x" , "model" : "m\u0041\ud83d\ude00\ud800" , "n" : null ,
		"tool_choice":{"function":{"name":"f"},"type":"function"},"messages":[{"role":"user","content":[{"image_url":{"url":"u"},"type":"image_url"}]}],"Model":"other"} `))
	if err != nil {
		t.Fatal(err)
	}
	if r.Model != "mA😀\uFFFD" || *r.MaxTokens != 3 || r.N != nil || !r.Stop.Bare || r.ToolChoice.Function != "f" {
		t.Errorf("read %+v", r)
	}
	if p := r.Messages[0].Content.Parts[0]; p.ImageURL == nil || p.ImageURL.URL != "u" || p.Raw != nil {
		t.Errorf("part %+v", p)
	}
	if string(r.Extra.Get("Model")) != `"other"` {
		t.Errorf("names differ by case: %v", r.Extra)
	}
}

func TestRequestErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, "not JSON at byte 0: unexpected end"},
		{`[]`, "expected an object"},
		{`{"model":1}`, "model: expected a string"},
		{`{"messages":"hello"}`, "messages: expected an array of messages"},
		{`{"messages":[{},"x"]}`, "messages[1]: expected an object"},
		{`{"messages":[{"role":7}]}`, "messages[0].role: expected a string"},
		{`{"messages":[{},{},{"content":7}]}`, "messages[2].content: expected a string or an array of parts"},
		{`{"messages":[{"content":["x"]}]}`, "messages[0].content[0]: expected an object"},
		{`{"messages":[{"content":[{"type":1}]}]}`, "messages[0].content[0].type: expected a string"},
		{`{"messages":[{"tool_calls":{}}]}`, "messages[0].tool_calls: expected an array of tool calls"},
		{`{"messages":[{"tool_calls":[{"function":{"arguments":{}}}]}]}`, "messages[0].tool_calls[0].function.arguments: expected a string"},
		{`{"tools":{}}`, "tools: expected an array of tools"},
		{`{"tools":[{"type":"function","function":"f"}]}`, "tools[0].function: expected an object"},
		{`{"stream":"true"}`, "stream: expected true or false"},
		{`{"stream_options":true}`, "stream_options: expected an object"},
		{`{"n":"2"}`, "n: expected a whole number"},
		{`{"max_tokens":1.5}`, "max_tokens: expected a whole number"},
		{`{"max_completion_tokens":1e30}`, "max_completion_tokens: expected a whole number"},
		{`{"model":"m"}x`, "not JSON at byte 13: unexpected text after the value"},
		{`{"model":"m",}`, "not JSON at byte 13: expected a member's name"},
		{`{"model":"m`, "not JSON at byte 11: string without an end"},
		{`{"a\u0062":[1,{"n":2],"messages":0}`, "not JSON at byte 20: expected ',' or '}' after a member"},
	} {
		_, err := DecodeChatRequest([]byte(c.text))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s\n got  %v\n want %s", c.text, err, c.want)
		}
		var syntax *SyntaxError
		var typ *TypeError
		if !errors.As(err, &syntax) && !errors.As(err, &typ) {
			t.Errorf("%s: error of type %T", c.text, err)
		}
	}
}

func TestDepthIsBounded(t *testing.T) {
	for _, open := range []string{"[", `{"a":`} {
		if _, err := DecodeChatRequest([]byte(`{"x":` + strings.Repeat(open, 100_000))); err == nil ||
			!strings.Contains(err.Error(), "nested too deeply") {
			t.Errorf("%s: %v", open, err)
		}
	}
}

func TestBrokenUTF8IsRepaired(t *testing.T) {
	r, err := DecodeChatRequest([]byte("{\"model\":\"a\xffb\",\"x\":\"\xc3\"}"))
	if err != nil || r.Model != "a\uFFFDb" || string(r.Extra.Get("x")) != "\"\uFFFD\"" {
		t.Errorf("%+v %v", r, err)
	}
}

func TestMembers(t *testing.T) {
	m, err := ParseMembers([]byte(`{"a": 1, "b":{"z":0,"a":0}, "a":2}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.JSON(); got != `{"a":1,"b":{"z":0,"a":0},"a":2}` {
		t.Errorf("JSON %s", got)
	}
	if string(m.Get("a")) != "2" || m.Get("c") != nil {
		t.Errorf("Get")
	}
	if string(m.Take("a")) != "2" || m.JSON() != `{"b":{"z":0,"a":0}}` || m.Take("a") != nil {
		t.Errorf("Take left %s", m.JSON())
	}
	if m.Take("b"); m != nil || m.JSON() != "" {
		t.Errorf("all taken: %v", m)
	}
	for _, bad := range []string{``, `[]`, `null`, `{"a":1}{}`, `{a:1}`} {
		if _, err := ParseMembers([]byte(bad)); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func TestNumbers(t *testing.T) {
	for f, want := range map[float64]string{0: "0", 1: "1", -100: "-100", 0.7: "0.7", 1e-7: "1e-07", 1e21: "1e+21", 123456789: "123456789"} {
		got := string(AppendNumber(nil, f))
		if got != want || !json.Valid([]byte(got)) {
			t.Errorf("%v: %s", f, got)
		}
	}
}

func TestEncodingJSONInterop(t *testing.T) {
	var wrapped struct{ Body ChatRequest }
	if err := json.Unmarshal([]byte(`{"Body":{"model":"m","messages":[],"x":1}}`), &wrapped); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(&wrapped)
	if err != nil || string(out) != `{"Body":{"model":"m","messages":[],"x":1}}` {
		t.Errorf("%s %v", out, err)
	}
	var again ChatRequest
	if err := json.Unmarshal([]byte(`{"model":7}`), &again); err == nil || !strings.Contains(err.Error(), "model: expected a string") {
		t.Errorf("%v", err)
	}
	if !reflect.DeepEqual(again, ChatRequest{}) {
		t.Errorf("a failed decode left %+v", again)
	}
}
