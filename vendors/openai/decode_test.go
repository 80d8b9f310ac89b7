package openai

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

var someTarget = vendors.Target{Vendor: vendors.OpenAI, Model: "m"}

func TestDecode(t *testing.T) {
	choice := func(message, rest string) string { return `{"choices":[{"message":` + message + rest + `}]}` }
	for name, c := range map[string]struct {
		body string
		want string // text format of the response
	}{
		"everything": {
			`{"id":"i","object":"chat.completion","created":1,"model":"m-1","service_tier":"flex","system_fingerprint":"fp","moderation":{"b":1,"a":2},"prompt_filter_results":null,
			"choices":[{"index":0,"message":{"role":"assistant","content":"hi","refusal":null,"annotations":[{"z":1,"a":12345678901234567890}],"audio":null},"finish_reason":"stop","logprobs":{"content":[]},"content_filter_results":{"hate":{}}},
			{"index":1,"message":{"role":"assistant","content":null,"refusal":"no"},"finish_reason":"length","logprobs":null}],
			"usage":{"prompt_tokens":10,"completion_tokens":8,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":2,"audio_tokens":1},"completion_tokens_details":{"reasoning_tokens":3,"audio_tokens":2,"accepted_prediction_tokens":1,"rejected_prediction_tokens":5}}}`,
			`choices { text: "hi" finish_reason: "stop" logprobs_json: "{\"content\":[]}" extra_json: "{\"annotations\":[{\"z\":1,\"a\":12345678901234567890}],\"content_filter_results\":{\"hate\":{}}}" }
			choices { index: 1 refusal: "no" finish_reason: "length" }
			usage { input: 10 output: 8 cache_read: 4 cache_write: 2 reasoning: 3 input_audio: 1 output_audio: 2 accepted_prediction: 1 rejected_prediction: 5 }
			vendor_response_id: "i" vendor_model: "m-1" service_tier: "flex" system_fingerprint: "fp" extra_json: "{\"moderation\":{\"b\":1,\"a\":2}}"`,
		},
		"calls of both kinds": {
			choice(`{"content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"2","type":"custom","custom":{"name":"c","input":"x"},"extra_content":{"a":1}}]}`, `,"finish_reason":"tool_calls"`),
			`choices { tool_calls { id: "1" type: "function" name: "f" arguments: "{}" } tool_calls { id: "2" type: "custom" name: "c" arguments: "x" extra_json: "{\"extra_content\":{\"a\":1}}" } finish_reason: "tool_calls" }`,
		},
		"arguments as an object": {
			choice(`{"tool_calls":[{"id":"1","function":{"name":"f","arguments":{"b":1,"a":2}}}]}`, `,"finish_reason":"stop"`),
			`choices { tool_calls { id: "1" type: "function" name: "f" arguments: "{\"b\":1,\"a\":2}" } finish_reason: "tool_calls" }`,
		},
		"empty reason":      {choice(`{"content":"x"}`, `,"finish_reason":""`), `choices { text: "x" finish_reason: "stop" }`},
		"no reason":         {choice(`{"content":"x"}`, ``), `choices { text: "x" finish_reason: "stop" }`},
		"unknown reason":    {choice(`{"content":"x"}`, `,"finish_reason":"bored"`), `choices { text: "x" finish_reason: "stop" raw_finish_reason: "bored" }`},
		"model_length":      {choice(`{"content":"x"}`, `,"finish_reason":"model_length"`), `choices { text: "x" finish_reason: "length" raw_finish_reason: "model_length" }`},
		"filtered":          {choice(`{"content":""}`, `,"finish_reason":"content_filter"`), `choices { finish_reason: "content_filter" }`},
		"empty but stopped": {choice(`{"content":""}`, `,"finish_reason":"stop"`), `choices { finish_reason: "stop" }`},
		"reasoning_content": {choice(`{"content":"x","reasoning_content":"r"}`, `,"finish_reason":"stop"`), `choices { text: "x" reasoning: "r" finish_reason: "stop" }`},
		"reasoning twice":   {choice(`{"content":"x","reasoning_content":"r","reasoning":"r"}`, `,"finish_reason":"stop"`), `choices { text: "x" reasoning: "r" finish_reason: "stop" }`},
		"parts": {
			choice(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"x"},{"type":"reference","ids":[1]},{"type":"text","text":"y"}]}`, `,"finish_reason":"stop"`),
			`choices { text: "xy" reasoning: "hm" finish_reason: "stop" extra_json: "{\"content_parts\":[{\"type\":\"reference\",\"ids\":[1]}]}" }`,
		},
		"DeepSeek's cache": {
			`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":1,"prompt_cache_hit_tokens":6,"prompt_cache_miss_tokens":4}}`,
			`choices { text: "x" finish_reason: "stop" } usage { input: 10 output: 1 cache_read: 6 }`,
		},
		"Groq's own": {
			`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"x_groq":{"id":"req_1","usage":{"prompt_tokens":3,"completion_tokens":2}}}`,
			`choices { text: "x" finish_reason: "stop" } usage { input: 3 output: 2 }`,
		},
		"reasoning counted beside": {
			`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":12,"completion_tokens_details":{"reasoning_tokens":7}}}`,
			`choices { text: "x" finish_reason: "stop" } usage { input: 3 output: 9 reasoning: 7 }`,
		},
		"usage out of its mind": {
			`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":-2,"prompt_tokens_details":{"cached_tokens":50,"cache_write_tokens":9}}}`,
			`choices { text: "x" finish_reason: "stop" } usage { input: 3 cache_read: 3 }`,
		},
		"blank lines before": {"\n\n  \n" + choice(`{"content":"x"}`, `,"finish_reason":"stop"`), `choices { text: "x" finish_reason: "stop" }`},
	} {
		got, err := decode(someTarget, []byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := &ktmsv1.GenerateTextResponse{}
		if err := prototext.Unmarshal([]byte(c.want), want); err != nil {
			t.Fatal(name, err)
		}
		if !proto.Equal(got, want) {
			t.Errorf("%s:\ngot  %v\nwant %v", name, got, want)
		}
	}
}

func TestDecodeMakesUpMissingIDs(t *testing.T) {
	got, err := decode(someTarget, []byte(`{"choices":[{"message":{"tool_calls":[{"function":{"name":"f"}},{"id":"","function":{"name":"g"}}]},"finish_reason":"tool_calls"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	one, two := got.GetChoices()[0].GetToolCalls()[0].GetId(), got.GetChoices()[0].GetToolCalls()[1].GetId()
	if !strings.HasPrefix(one, "call_") || len(one) < 20 || one == two {
		t.Errorf("%q %q", one, two)
	}
}

func TestDecodeFailures(t *testing.T) {
	for body, want := range map[string]vendors.Kind{
		`{"choices":[{"message":{"content":""},"finish_reason":null}]}`:                            vendors.Unavailable,
		`{"choices":[{"message":{"content":"x"},"finish_reason":"insufficient_system_resource"}]}`: vendors.Unavailable,
		`{"choices":[{"message":{"content":"x"},"finish_reason":"error"}]}`:                        vendors.Unavailable,
		`{"choices":[{"finish_reason":"bored"}]}`:                                                  vendors.Unavailable,
		`{"error":{"message":"m","type":"invalid_request_error"}}`:                                 vendors.Invalid,
		`{"error":{"message":"m","code":"context_length_exceeded"}}`:                               vendors.Overflow,
		`{"error":{"message":"m","type":"insufficient_quota"}}`:                                    vendors.Denied,
		`{"error":{"message":"m","code":429}}`:                                                     vendors.RateLimited,
		`{"error":{"message":"m","code":"rate_limit_exceeded"}}`:                                   vendors.RateLimited,
		`{"error":{"message":"m","type":"overloaded_error"}}`:                                      vendors.Unavailable,
		`{"error":{}}`: vendors.Unavailable,
		`{"error":"This model's maximum context length is 8 tokens"}`: vendors.Overflow,
		`[]`: vendors.Unavailable,
		``:   vendors.Unavailable,
	} {
		if _, err := decode(someTarget, []byte(body)); err == nil || err.Kind != want {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// chunksOf runs events through a stream and returns what came out, and the end.
func chunksOf(t *testing.T, events ...string) ([]*ktmsv1.GenerateTextChunk, *vendors.Error) {
	t.Helper()
	s := newStream(someTarget, 1)
	var out []*ktmsv1.GenerateTextChunk
	for _, event := range events {
		chunks, failed := s.take("", []byte(event))
		out = append(out, chunks...)
		if failed != nil {
			chunks, failed = s.end(failed, false)
			return append(out, chunks...), failed
		}
	}
	chunks, failed := s.end(nil, false)
	return append(out, chunks...), failed
}

func TestStreamChunks(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		want   []string
	}{
		"new things once": {
			[]string{
				`{"id":"i","model":"m-1","service_tier":"flex","system_fingerprint":"fp","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`,
				`{"id":"i","model":"m-1","service_tier":"flex","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"x"}}],"usage":null}`,
				`{"id":"j","model":"","service_tier":"default","system_fingerprint":"fp2","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
			},
			[]string{`vendor_response_id: "i" vendor_model: "m-1" service_tier: "flex" system_fingerprint: "fp"`, `delta: "x"`, `service_tier: "default" system_fingerprint: "fp2" finish_reason: "stop"`},
		},
		"Azure's first chunk waits for content": {
			[]string{
				`{"id":"","model":"","choices":[],"prompt_filter_results":[{"a":1}]}`,
				`{"id":"i","choices":[{"index":0,"delta":{"role":"assistant"}}]}`,
				`{"id":"i","choices":[{"index":0,"delta":{"content":"x"},"content_filter_results":{}}]}`,
				`{"id":"i","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
			},
			[]string{`vendor_response_id: "i"`, `delta: "x" extra_json: "{\"content_filter_results\":{},\"prompt_filter_results\":[{\"a\":1}]}"`, `finish_reason: "stop"`},
		},
		"repeated members once, padding never": {
			[]string{
				`{"provider":"p","obfuscation":"zzz","choices":[{"delta":{"content":"x"}}]}`,
				`{"provider":"p","obfuscation":"zzzz","choices":[{"delta":{"content":"y"}}]}`,
				`{"provider":"q","choices":[{"delta":{},"finish_reason":"stop"}],"timings":{"n":1}}`,
			},
			[]string{`delta: "x" extra_json: "{\"provider\":\"p\"}"`, `delta: "y"`, `finish_reason: "stop" extra_json: "{\"provider\":\"q\",\"timings\":{\"n\":1}}"`},
		},
		"members after the end": {
			[]string{`{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}`, `{"id":"i","choices":[],"moderation":{"a":1}}`},
			[]string{`delta: "x" finish_reason: "stop"`, `vendor_response_id: "i"`, `extra_json: "{\"moderation\":{\"a\":1}}"`},
		},
		"usage on every chunk": {
			[]string{
				`{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`,
				`{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`,
			},
			[]string{`delta: "x"`, `finish_reason: "stop"`, `usage { input: 3 output: 2 }`},
		},
		"Groq's usage": {
			[]string{`{"choices":[{"delta":{"content":"x"}}],"x_groq":{"id":"r"}}`, `{"choices":[{"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"r","usage":{"prompt_tokens":3,"completion_tokens":2}}}`},
			[]string{`delta: "x"`, `finish_reason: "stop"`, `usage { input: 3 output: 2 }`},
		},
		"two choices": {
			[]string{`{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}`, `{"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}`, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`},
			[]string{`delta: "a"`, `delta: "b" index: 1`, `finish_reason: "length" index: 1`, `finish_reason: "stop"`},
		},
		"finished twice": {
			[]string{`{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`},
			[]string{`delta: "x" finish_reason: "stop"`},
		},
		"thinking in parts, logprobs, refusal": {
			[]string{`{"choices":[{"delta":{"content":[{"type":"thinking","thinking":"hm"}]}}]}`, `{"choices":[{"delta":{"refusal":"no"},"logprobs":{"a":1},"finish_reason":"content_filter"}]}`},
			[]string{`reasoning_delta: "hm"`, `refusal_delta: "no" logprobs_json: "{\"a\":1}" finish_reason: "content_filter"`},
		},
		"unknown members of a delta": {
			[]string{`{"choices":[{"delta":{"content":"x","audio":{"id":"a"},"function_call":null}}]}`, `{"choices":[{"delta":{},"finish_reason":"eos"}]}`},
			[]string{`delta: "x" extra_json: "{\"audio\":{\"id\":\"a\"}}"`, `finish_reason: "stop" raw_finish_reason: "eos"`},
		},
	} {
		got, failed := chunksOf(t, c.events...)
		if failed != nil {
			t.Errorf("%s: %v", name, failed)
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %d chunks, want %d: %v", name, len(got), len(c.want), got)
			continue
		}
		for i, text := range c.want {
			want := &ktmsv1.GenerateTextChunk{}
			if err := prototext.Unmarshal([]byte(text), want); err != nil {
				t.Fatal(name, err)
			}
			if !proto.Equal(got[i], want) {
				t.Errorf("%s: chunk %d\ngot  %v\nwant %v", name, i, got[i], want)
			}
		}
	}
}

func TestStreamToolCalls(t *testing.T) {
	const end = `{"choices":[{"delta":{},"finish_reason":"stop"}]}`
	delta := func(calls string) string { return `{"choices":[{"delta":{"tool_calls":[` + calls + `]}}]}` }
	for name, c := range map[string]struct {
		events []string
		want   string // id name arguments; one call after the other
	}{
		"as OpenAI does": {
			[]string{delta(`{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}`), delta(`{"index":0,"function":{"arguments":"{\"x\":"}}`), delta(`{"index":0,"function":{"arguments":"1}"}}`),
				delta(`{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}`)},
			`a f {"x":1}; b g {}`,
		},
		"interleaved": {
			[]string{delta(`{"index":0,"id":"a","function":{"name":"f"}},{"index":1,"id":"b","function":{"name":"g"}}`), delta(`{"index":1,"function":{"arguments":"B"}}`), delta(`{"index":0,"function":{"arguments":"A"}}`)},
			`a f A; b g B`,
		},
		"counted from elsewhere, with gaps": {
			[]string{delta(`{"index":3,"id":"a","function":{"name":"f","arguments":"A"}}`), delta(`{"index":7,"id":"b","function":{"name":"g","arguments":"B"}}`), delta(`{"index":3,"function":{"arguments":"A"}}`)},
			`a f AA; b g B`,
		},
		"no index": {
			[]string{delta(`{"id":"a","function":{"name":"f","arguments":"A"}}`), delta(`{"function":{"arguments":"A"}}`), delta(`{"id":"b","function":{"name":"g","arguments":"B"}}`), delta(`{"id":"a","function":{"arguments":"A"}}`)},
			`a f AAA; b g B`,
		},
		"no index, no id": {
			[]string{delta(`{"function":{"name":"f","arguments":"A"}},{"function":{"name":"f","arguments":"B"}}`), delta(`{"function":{"arguments":"B"}}`)},
			`? f A; ? f BB`,
		},
		"index 0 for every call": {
			[]string{delta(`{"index":0,"id":"a","function":{"name":"f","arguments":"A"}}`), delta(`{"index":0,"id":"b","function":{"name":"f","arguments":"B"}}`), delta(`{"index":0,"function":{"arguments":"B"}}`)},
			`a f A; b f BB`,
		},
		"a new id for every piece": {
			[]string{delta(`{"index":0,"id":"a","function":{"name":"f"}}`), delta(`{"index":0,"id":"b","function":{"arguments":"A"}}`), delta(`{"index":0,"id":"c","function":{"name":null,"arguments":"A"}}`)},
			`a f AA`,
		},
		"the id and the name in every piece": {
			[]string{delta(`{"index":0,"id":"a","function":{"name":"f","arguments":"A"}}`), delta(`{"index":0,"id":"a","function":{"name":"f","arguments":"A"}}`)},
			`a f AA`,
		},
		"arguments as an object": {[]string{delta(`{"index":0,"id":"a","function":{"name":"f","arguments":{"x":1}}}`)}, `a f {"x":1}`},
		"custom":                 {[]string{delta(`{"index":0,"id":"a","type":"custom","custom":{"name":"f","input":"A"}}`), delta(`{"index":0,"custom":{"input":"B"}}`)}, `a f AB`},
	} {
		got, failed := chunksOf(t, append(c.events, end)...)
		if failed != nil {
			t.Errorf("%s: %v", name, failed)
		}
		type call struct{ id, name, arguments string }
		var calls []*call
		finish := ""
		for _, chunk := range got {
			finish += chunk.GetFinishReason()
			for _, piece := range chunk.GetToolCallChunks() {
				if int(piece.GetIndex()) == len(calls) {
					calls = append(calls, &call{piece.GetId(), piece.GetName(), ""})
				} else if piece.GetId() != "" || piece.GetName() != "" || piece.GetType() != "" {
					t.Errorf("%s: said again: %v", name, piece)
				}
				calls[piece.GetIndex()].arguments += piece.GetArguments()
			}
		}
		var all []string
		for _, one := range calls {
			if strings.HasPrefix(one.id, "call_") {
				one.id = "?"
			}
			all = append(all, one.id+" "+one.name+" "+one.arguments)
		}
		if text := strings.Join(all, "; "); text != c.want || finish != "tool_calls" {
			t.Errorf("%s: %s, finished by %s", name, text, finish)
		}
	}
}

func TestStreamFailures(t *testing.T) {
	const hi = `{"choices":[{"delta":{"content":"hi"}}]}`
	for name, c := range map[string]struct {
		events []string
		kind   vendors.Kind
	}{
		"nothing":                       {nil, vendors.Unavailable},
		"no finish":                     {[]string{hi}, vendors.Unavailable},
		"one of two without a finish":   {[]string{`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"},{"index":1,"delta":{}}]}`}, vendors.Unavailable},
		"a choice far away":             {[]string{`{"choices":[{"index":4294967296,"delta":{},"finish_reason":"stop"}]}`}, vendors.Unavailable},
		"no resources":                  {[]string{hi, `{"choices":[{"delta":{},"finish_reason":"insufficient_system_resource"}]}`}, vendors.Unavailable},
		"unknown reason, nothing said":  {[]string{`{"choices":[{"delta":{"role":"assistant"},"finish_reason":"bored"}]}`}, vendors.Unavailable},
		"too long":                      {[]string{`{"error":{"message":"m","code":"context_length_exceeded"}}`}, vendors.Overflow},
		"error beside choices":          {[]string{hi, `{"id":"i","choices":[{"delta":{},"finish_reason":"error"}],"error":{"code":502,"message":"m"}}`}, vendors.Unavailable},
		"Groq's own":                    {[]string{hi, `{"choices":[{"delta":{}}],"x_groq":{"error":"over capacity"}}`}, vendors.Unavailable},
		"a flat error":                  {[]string{hi, `{"object":"error","message":"m","code":400,"type":"BadRequestError"}`}, vendors.Invalid},
		"an answer with a broken event": {[]string{hi, `{"choices":[`}, vendors.Unavailable},
	} {
		if _, failed := chunksOf(t, c.events...); failed == nil || failed.Kind != c.kind {
			t.Errorf("%s: %v", name, failed)
		}
	}
}
