package openaiapi

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

var seeds = []string{
	`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":"u"}]}],"stop":[],"temperature":0,"x":{"a":1}}`,
	`{"model":"m","tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":{"type":"function","function":{"name":"f"}},"logit_bias":{"1":1}}`,
	`{"id":"i","choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"function":{"arguments":{"a":1}}}]},"finish_reason":null}],"usage":null}`,
	`{"choices":[{"message":{"content":["a",{"type":"thinking"}]},"finish_reason":""}],"error":"boom","usage":{"prompt_tokens":1e3,"prompt_tokens_details":{"cached_tokens":-0}}}`,
	`{"error":{"message":{"detail":[]},"code":400}}`, `[{"error":{"code":1}}]`, `{"detail":"x"}`,
	`{"a":"\ud83d\ude00\ud800\u0000","a":-1.5E+10}`, "{\"a\":\"\xff\"}", `[1,]`, `{"a":01}`, `"\x"`, ` null `, `{"messages":[{"content":`,
}

func addSeeds(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
}

// FuzzScan holds the scanner against encoding/json: the same texts are JSON, and strings read the same.
func FuzzScan(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		d := newDecoder(data, false)
		quoted := d.kind() == '"'
		var text string
		if quoted {
			text = unquote(d.quoted())
		} else {
			d.skip()
		}
		err := d.end()
		if !utf8.Valid(data) {
			return // repaired here, refused or repaired elsewhere there
		}
		if (err == nil) != json.Valid(data) {
			t.Fatalf("%q: %v, but encoding/json says %v", data, err, json.Valid(data))
		}
		if err == nil && quoted {
			var want string
			if err := json.Unmarshal(data, &want); err != nil || text != want {
				t.Fatalf("%q: read %q, want %q", data, text, want)
			}
			var back string
			if err := json.Unmarshal(AppendString(nil, text), &back); err != nil || back != text {
				t.Fatalf("%q: wrote %q", text, AppendString(nil, text))
			}
		}
	})
}

// FuzzRequest: what was decoded is encoded as valid JSON, which decodes to the same again.
func FuzzRequest(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeChatRequest(data)
		if err != nil {
			return
		}
		once := r.AppendJSON(nil)
		again, err := DecodeChatRequest(once)
		if err != nil || !json.Valid(once) {
			t.Fatalf("wrote %q: %v", once, err)
		}
		if twice := again.AppendJSON(nil); !bytes.Equal(once, twice) {
			t.Fatalf("not stable:\n%s\n%s", once, twice)
		}
	})
}

// FuzzAnswer does the same for answers, chunks and errors, none of which may fail on valid JSON objects.
func FuzzAnswer(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		DecodeError(data)
		DecodeUsage(data)
		r, err := DecodeChatResponse(data)
		var c ChatChunk
		if chunkErr := c.Decode(data); (err == nil) != (chunkErr == nil) {
			t.Fatalf("%q: %v, but as a chunk %v", data, err, chunkErr)
		}
		if err != nil {
			return
		}
		once := r.AppendJSON(nil)
		again, err := DecodeChatResponse(once)
		if err != nil || !json.Valid(once) {
			t.Fatalf("wrote %q: %v", once, err)
		}
		if twice := again.AppendJSON(nil); !bytes.Equal(once, twice) {
			t.Fatalf("not stable:\n%s\n%s", once, twice)
		}
		once = c.AppendJSON(nil)
		var c2 ChatChunk
		if err := c2.Decode(once); err != nil {
			t.Fatalf("wrote %q: %v", once, err)
		}
		if twice := c2.AppendJSON(nil); !bytes.Equal(once, twice) {
			t.Fatalf("not stable:\n%s\n%s", once, twice)
		}
	})
}
