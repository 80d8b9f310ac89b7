package openai

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// checkMessage holds what is decoded to what the contract says: it can be sent on, and its JSON members are JSON.
func checkMessage(t *testing.T, m proto.Message, texts ...string) {
	t.Helper()
	if _, err := proto.Marshal(m); err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		if text != "" && !json.Valid([]byte(text)) {
			t.Fatalf("not JSON: %q", text)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(okBody))
	files, err := filepath.Glob("testdata/ollama/*.resp")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		if _, body, found := strings.Cut(string(data), "\r\n\r\n"); found {
			f.Add([]byte(body))
		}
	}
	f.Add([]byte(`{"choices":[{"message":{"content":[{"type":"thinking","thinking":["a",{"type":"text"}]}],"audio":{}},"finish_reason":"x","logprobs":[]}],"x_groq":{"usage":{"prompt_tokens":-1},"error":7},"usage":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, failed := decode(someTarget, body)
		if (r == nil) == (failed == nil) {
			t.Fatalf("%v and %v", r, failed)
		}
		if failed != nil {
			return
		}
		checkMessage(t, r, r.GetExtraJson())
		for _, c := range r.GetChoices() {
			checkMessage(t, c, c.GetExtraJson(), c.GetLogprobsJson())
			if c.GetFinishReason() == "" {
				t.Fatal("a choice without a finish reason")
			}
			for _, call := range c.GetToolCalls() {
				checkMessage(t, call, call.GetExtraJson())
				if call.GetId() == "" {
					t.Fatal("a call without an id")
				}
			}
		}
		if u := r.GetUsage(); u.GetCacheRead() > u.GetInput() || u.GetReasoning() > u.GetOutput() || u.GetInput() < 0 || u.GetOutput() < 0 {
			t.Fatalf("usage %v", u)
		}
	})
}

// FuzzStream feeds the lines of a text as events.
func FuzzStream(f *testing.F) {
	f.Add("{\"id\":\"i\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"x\"}}]}\n{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n{\"choices\":[],\"usage\":{}}")
	f.Add("{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":5,\"function\":{\"name\":\"f\"}},{\"id\":\"a\"},{\"index\":5,\"id\":\"b\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]}}]}\n{\"x\":{\"a\":1},\"choices\":[{\"index\":-1,\"delta\":{\"content\":[\"a\"]},\"finish_reason\":\"eos\"}]}")
	f.Add("{\"error\":\"x\"}")
	f.Fuzz(func(t *testing.T, text string) {
		s := newStream(someTarget, 1)
		calls := map[int32]int32{}
		finished := map[int32]bool{}
		check := func(chunks []*ktmsv1.GenerateTextChunk) {
			for _, c := range chunks {
				checkMessage(t, c, c.GetExtraJson(), c.GetLogprobsJson())
				for _, piece := range c.GetToolCallChunks() {
					checkMessage(t, piece, piece.GetExtraJson())
					if first := piece.GetIndex() == calls[c.GetIndex()]; first {
						calls[c.GetIndex()]++
						if piece.GetId() == "" || piece.GetType() == "" {
							t.Fatalf("the first piece says too little: %v", piece)
						}
					} else if piece.GetIndex() > calls[c.GetIndex()] || piece.GetId() != "" {
						t.Fatalf("a gap, or an id that is said again: %v", piece)
					}
				}
				if c.GetFinishReason() != "" {
					if finished[c.GetIndex()] {
						t.Fatal("finished twice")
					}
					finished[c.GetIndex()] = true
				}
			}
		}
		for _, event := range strings.Split(text, "\n") {
			chunks, failed := s.take("", []byte(event))
			check(chunks)
			if failed != nil {
				chunks, failed = s.end(failed, false)
				if check(chunks); failed == nil {
					t.Fatal("a failure got lost")
				}
				return
			}
		}
		chunks, failed := s.end(nil, false)
		check(chunks)
		if failed == nil && len(finished) == 0 {
			t.Fatal("a clean end without a finish reason")
		}
	})
}

var benchEvent = []byte(`{"id":"chatcmpl-215","object":"chat.completion.chunk","created":1796005506,"model":"lab-script","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"},"finish_reason":null}]}`)

func BenchmarkStreamChunk(b *testing.B) {
	s := newStream(someTarget, 1)
	b.ReportAllocs()
	b.SetBytes(int64(len(benchEvent)))
	for b.Loop() {
		if _, failed := s.take("", benchEvent); failed != nil {
			b.Fatal(failed)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	req := everything()
	target := vendors.Target{Vendor: vendors.OpenAI, Model: "m"}
	b.ReportAllocs()
	for b.Loop() {
		if _, failed := encode(target, req, true); failed != nil {
			b.Fatal(failed)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	body := []byte(okBody)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, failed := decode(someTarget, body); failed != nil {
			b.Fatal(failed)
		}
	}
}
