package admit

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// The error of the estimate on sample texts, against the counts of two public tokenizers. It has to lean to the high
// side of the newer one, and not by much: a reservation that is far too large refuses calls that would fit.
func TestEstimateOnSamples(t *testing.T) {
	file, err := os.Open("testdata/tokens.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var s struct {
			Name, Text    string
			O200k, Cl100k int64
		}
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		var c Counter
		c.Add(s.Text)
		got := c.Tokens()
		t.Logf("%-14s %3d tokens estimated, %3d (%+4d%%) and %3d counted", s.Name, got, s.O200k, (got-s.O200k)*100/s.O200k, s.Cl100k)
		if got*100 < s.O200k*92 || got > s.O200k*2+5 {
			t.Errorf("%s: %d tokens, counted %d", s.Name, got, s.O200k)
		}
		var pieces Counter
		for _, r := range s.Text {
			pieces.Add(string(r))
		}
		if pieces.Tokens() != got {
			t.Errorf("%s: %d in pieces, %d whole", s.Name, pieces.Tokens(), got)
		}
	}
}

func TestEstimateInput(t *testing.T) {
	text := func(s string) *ktmsv1.Message { return &ktmsv1.Message{Text: s} }
	part := func(p *ktmsv1.ContentPart) *ktmsv1.Message { return &ktmsv1.Message{Parts: []*ktmsv1.ContentPart{p}} }
	for _, c := range []struct {
		name string
		req  *ktmsv1.GenerateTextRequest
		want int64
	}{
		{"nothing", &ktmsv1.GenerateTextRequest{}, 0},
		{"text", &ktmsv1.GenerateTextRequest{BaseSystemInstruction: "abcd", RequestInstruction: "abcd", Messages: []*ktmsv1.Message{text("abcd")}}, 4 + perMessage},
		{"an image", &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{part(&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Image{}})}}, perMessage + perImage},
		{"a document of two pages", &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{part(&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Document{
			Document: &ktmsv1.DocumentPart{MimeType: pdf, Source: &ktmsv1.DocumentPart_Data{Data: make([]byte, pageBytes+1)}}}})}}, perMessage + 2*perPage},
		{"a tool", &ktmsv1.GenerateTextRequest{Tools: []*ktmsv1.Tool{{Name: "abcd", ParametersJson: "abcdabcd"}}}, perTool + 4},
		{"a call", &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{{ToolCalls: []*ktmsv1.ToolCall{{Name: "abcd", Arguments: "abcd"}}}}}, 2*perMessage + 3},
	} {
		if got := EstimateInput(c.req); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if got := EstimateEmbeddings(&ktmsv1.GetEmbeddingsRequest{Inputs: []string{"abcd", "ab"}}); got != 3 {
		t.Errorf("embeddings: %d", got)
	}
	if got := EstimateEmbeddings(&ktmsv1.GetEmbeddingsRequest{TokenInputs: []*ktmsv1.TokenInput{{Tokens: []int32{1, 2, 3}}}}); got != 3 {
		t.Errorf("tokens: %d", got)
	}
}

// unread are the fields of a request that no model reads, or that cost the same whatever they say.
var unread = []string{
	"attributes", "action_id", "model_override", "placement", "stop", "logit_bias", "verbosity", "service_tier",
	"reasoning_effort", "prompt_cache_key", "beta_headers",
	"messages.parts.image.", "messages.parts.audio.format", "messages.parts.document.mime_type", "messages.parts.document.file_id",
	"messages.parts.document.url", // a vendor fetches it; what a data: URL holds has a test of its own
	"messages.parts.embedding.model", "messages.tool_calls.id", "messages.tool_calls.type",
}

// A prompt that is not counted is a way around every limit, so no field that a vendor may read goes by unseen.
func TestEstimateInput_SeesEveryField(t *testing.T) {
	text := strings.Repeat("many words ", 10_000)
	var visit func(md protoreflect.MessageDescriptor, path string, within func(protoreflect.Message) *ktmsv1.GenerateTextRequest)
	visit = func(md protoreflect.MessageDescriptor, path string, within func(protoreflect.Message) *ktmsv1.GenerateTextRequest) {
		for i := range md.Fields().Len() {
			f := md.Fields().Get(i)
			at := path + string(f.Name())
			if slices.ContainsFunc(unread, func(u string) bool { return strings.HasPrefix(at, u) }) {
				continue
			}
			holder := func(set func(protoreflect.Message)) *ktmsv1.GenerateTextRequest {
				m := newMessage(t, md)
				set(m)
				return within(m)
			}
			if f.Kind() == protoreflect.MessageKind && !f.IsMap() {
				if strings.HasPrefix(string(f.Message().FullName()), "google.") {
					continue
				}
				visit(f.Message(), at+".", func(child protoreflect.Message) *ktmsv1.GenerateTextRequest {
					return holder(func(m protoreflect.Message) {
						if f.IsList() {
							m.Mutable(f).List().Append(protoreflect.ValueOfMessage(child))
						} else {
							m.Set(f, protoreflect.ValueOfMessage(child))
						}
					})
				})
				continue
			}
			var long protoreflect.Value
			switch f.Kind() {
			case protoreflect.StringKind:
				long = protoreflect.ValueOfString(text)
			case protoreflect.BytesKind:
				long = protoreflect.ValueOfBytes([]byte(text))
			default:
				continue
			}
			if f.IsList() || f.IsMap() {
				t.Errorf("%s: a list or map of text that the test does not know", at)
				continue
			}
			with := EstimateInput(holder(func(m protoreflect.Message) { m.Set(f, long) }))
			without := EstimateInput(holder(func(protoreflect.Message) {}))
			if with < without+150 { // the least is a sound of 110 KB
				t.Errorf("%s: %d tokens with a long text, %d without", at, with, without)
			}
		}
	}
	root := (&ktmsv1.GenerateTextRequest{}).ProtoReflect().Descriptor()
	visit(root, "", func(m protoreflect.Message) *ktmsv1.GenerateTextRequest {
		return m.Interface().(*ktmsv1.GenerateTextRequest)
	})
}

func newMessage(t *testing.T, md protoreflect.MessageDescriptor) protoreflect.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(md.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return kind.New()
}

// A part that travels raw costs what it is: an image is no text, and text beside an image is.
func TestEstimateInput_RawParts(t *testing.T) {
	long := strings.Repeat("A", 400_000)
	raw := func(json string) int64 {
		return EstimateInput(&ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{{Parts: []*ktmsv1.ContentPart{{Part: &ktmsv1.ContentPart_RawJson{RawJson: json}}}}}})
	}
	for _, c := range []struct {
		name        string
		json        string
		least, most int64
	}{
		{"an image", `{"type":"image_url","image_url":"data:image/png;base64,` + long + `"}`, perImage, perImage + 50},
		{"an image with a format", `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + long + `"},"format":"png"}`, perImage, perImage + 50},
		{"a sound", `{"type":"input_audio","input_audio":{"data":"` + long + `","format":"mp3"}}`, 500, 800},
		{"a document", `{"type":"file","file":{"file_data":"data:application/pdf;base64,` + long + `"}}`, 5 * perPage, 6 * perPage},
		{"a film", `{"type":"video_url","video_url":{"url":"data:video/mp4;base64,` + long + `"}}`, 500, 800},
		{"a document of text", `{"type":"file","file":{"file_data":"data:text/plain;base64,` + long + `"}}`, 100_000, 400_000},
		{"text beside an image", `{"type":"image_url","image_url":"x","note":"` + long + `"}`, 100_000, 400_000},
		{"an image that says that it is text", `{"type":"text","text":"data:image/png;base64,` + long + `"}`, 100_000, 400_000},
		{"a kind that nobody knows", `{"type":"scroll","scroll":"` + long + `"}`, 100_000, 400_000},
		{"no JSON", long, 100_000, 400_000},
	} {
		if got := raw(c.json); got < c.least || got > c.most {
			t.Errorf("%s: %d tokens, want %d to %d", c.name, got, c.least, c.most)
		}
	}
}

// A document of text costs what it says, however it comes; pages cost by the page.
func TestEstimateInput_Documents(t *testing.T) {
	words := []byte(strings.Repeat("many words ", 10_000))
	encoded := base64.StdEncoding.EncodeToString(words)
	document := func(d *ktmsv1.DocumentPart) int64 {
		return EstimateInput(&ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{{Parts: []*ktmsv1.ContentPart{{Part: &ktmsv1.ContentPart_Document{Document: d}}}}}})
	}
	asText := EstimateInput(&ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{{Text: string(words)}}})
	for name, d := range map[string]*ktmsv1.DocumentPart{
		"bytes":              {Source: &ktmsv1.DocumentPart_Data{Data: words}, MimeType: "text/plain"},
		"bytes of no kind":   {Source: &ktmsv1.DocumentPart_Data{Data: words}},
		"a data URL":         {Source: &ktmsv1.DocumentPart_Url{Url: "data:text/markdown;base64," + encoded}},
		"a URL that is text": {Source: &ktmsv1.DocumentPart_Url{Url: "data:text/plain," + string(words)}},
	} {
		if got := document(d); got != asText {
			t.Errorf("%s: %d tokens, as text %d", name, got, asText)
		}
	}
	for name, d := range map[string]*ktmsv1.DocumentPart{
		"by its type":  {Source: &ktmsv1.DocumentPart_Data{Data: words}, MimeType: pdf},
		"by its bytes": {Source: &ktmsv1.DocumentPart_Data{Data: append([]byte("%PDF-1.7 "), words...)}},
		"a data URL":   {Source: &ktmsv1.DocumentPart_Url{Url: "data:application/pdf;base64," + encoded}},
	} {
		if got := document(d); got != perMessage+2*perPage {
			t.Errorf("pages %s: %d tokens", name, got)
		}
	}
}

// Pictures that an answer held come back with the message; they are no text. Thoughts that come as text and as state are
// the same ones.
func TestEstimateInput_WhatComesBack(t *testing.T) {
	picture := strings.Repeat("iVBORw0KGgo", 100_000)
	m := &ktmsv1.Message{Text: "here", ExtraJson: `{"images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + picture + `"}}],"note":"short"}`}
	if got := EstimateInput(&ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{m}}); got < perImage || got > 5*perImage {
		t.Errorf("a picture is %d tokens", got)
	}
	thoughts := strings.Repeat("many words ", 5_000)
	m = &ktmsv1.Message{Reasoning: thoughts, Opaque: base64.StdEncoding.EncodeToString([]byte(thoughts))}
	both := EstimateInput(&ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{m}})
	m.Opaque = ""
	if text := EstimateInput(&ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{m}}); both > text*3/2 {
		t.Errorf("thoughts are %d tokens with their state, and %d without", both, text)
	}
}

func BenchmarkCounter(b *testing.B) {
	text := strings.Repeat("Keystone decides by rules which model answers. ", 100)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var c Counter
		c.Add(text)
	}
}
