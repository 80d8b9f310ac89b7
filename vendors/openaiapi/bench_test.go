package openaiapi

import (
	"encoding/json"
	"strings"
	"testing"
)

// benchRequest is about 2 KB: three turns, a tool and sampling parameters.
var benchRequest = []byte(`{"model":"gpt-test","messages":[{"role":"system","content":"` + strings.Repeat("Follow the rules of the house.\\n", 20) +
	`"},{"role":"user","content":[{"type":"text","text":"` + strings.Repeat("What is the weather in Paris? ", 12) +
	`"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Paris\"}"}}]},{"role":"tool","tool_call_id":"call_1","content":"12 C"}],` +
	`"tools":[{"type":"function","function":{"name":"get_weather","description":"Weather of a city","parameters":{"type":"object","properties":{"city":{"type":"string"},"unit":{"type":"string","enum":["c","f"]}},"required":["city"]}}}],` +
	`"temperature":0.2,"max_tokens":512,"stream":true,"stream_options":{"include_usage":true},"metadata":{"team":"` + strings.Repeat("x", 150) + `"}}`)

var benchChunk = []byte(`{"id":"chatcmpl-215","object":"chat.completion.chunk","created":1796005506,"model":"lab-script","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"},"finish_reason":null}]}`)

func BenchmarkDecodeRequest(b *testing.B) {
	b.SetBytes(int64(len(benchRequest)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeChatRequest(benchRequest); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeRequest(b *testing.B) {
	r, err := DecodeChatRequest(benchRequest)
	if err != nil {
		b.Fatal(err)
	}
	var out []byte
	b.SetBytes(int64(len(benchRequest)))
	b.ReportAllocs()
	for b.Loop() {
		out = r.AppendJSON(out[:0])
	}
}

func BenchmarkDecodeChunk(b *testing.B) {
	var c ChatChunk
	b.SetBytes(int64(len(benchChunk)))
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Decode(benchChunk); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecodeChunkEncodingJSON is what the scanner of this package is measured against.
func BenchmarkDecodeChunkEncodingJSON(b *testing.B) {
	b.SetBytes(int64(len(benchChunk)))
	b.ReportAllocs()
	for b.Loop() {
		var c struct {
			ID, Object, Model string
			Created           int64
			Choices           []struct {
				Index int
				Delta struct{ Role, Content string }
			}
		}
		if err := json.Unmarshal(benchChunk, &c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeChunk(b *testing.B) {
	var c ChatChunk
	if err := c.Decode(benchChunk); err != nil {
		b.Fatal(err)
	}
	var out []byte
	b.SetBytes(int64(len(benchChunk)))
	b.ReportAllocs()
	for b.Loop() {
		out = c.AppendEvent(out[:0])
	}
}
