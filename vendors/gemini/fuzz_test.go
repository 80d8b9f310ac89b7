package gemini

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/sse"
)

var answerSeeds = []string{
	`{"candidates":[{"content":{"parts":[{"text":"a","thought":true},{"text":"b","thoughtSignature":"s"},{"functionCall":{"id":"i","name":"f","args":{"a":1}}}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1},"responseId":"r"}`,
	`{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"aGk="}},{"x":1},null]},"finishReason":"OTHER","groundingMetadata":{"groundingChunks":[{"web":{"uri":"u"}}]},"logprobsResult":{"chosenCandidates":[{"token":"t","logProbability":-1e5}]}},{"index":3,"content":{"parts":[{"functionCall":{"args":"x"}},{"toolCall":{}}]},"finishReason":"?"}]}`,
	`{"promptFeedback":{"blockReason":"SAFETY"}}`,
	`[{"error":{"code":429,"details":[{"retryDelay":"1s"}]}}]`,
	"{\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\",\"args\":{\"\xff\":\"\xfe\"}}},{\"y\":\"\xff\"}]},\"finishReason\":\"\xff\",\"groundingMetadata\":\"\xff\"}]}",
	`{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}],"usageMetadata":{"promptTokenCount":-1,"candidatesTokenCount":"9e99"}}`,
}

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

// gathered puts the chunks of a stream together, and checks each.
func gathered(t *testing.T, chunks []*ktmsv1.GenerateTextChunk) map[int32]*ktmsv1.Choice {
	t.Helper()
	all := map[int32]*ktmsv1.Choice{}
	for _, c := range chunks {
		checkMessage(t, c, c.GetExtraJson(), c.GetLogprobsJson())
		if !vendors.HasContent(c) {
			continue
		}
		choice := all[c.GetIndex()]
		if choice == nil {
			choice = &ktmsv1.Choice{Index: c.GetIndex()}
			all[c.GetIndex()] = choice
		}
		choice.Text += c.GetDelta()
		choice.Reasoning += c.GetReasoningDelta()
		choice.RawFinishReason += c.GetRawFinishReason()
		for _, call := range c.GetToolCallChunks() {
			if int(call.GetIndex()) != len(choice.ToolCalls) || call.GetId() == "" || call.GetType() == "" || !json.Valid([]byte(call.GetArguments())) {
				t.Fatalf("call %d is %v", len(choice.ToolCalls), call)
			}
			choice.ToolCalls = append(choice.ToolCalls, &ktmsv1.ToolCall{Name: call.GetName(), Arguments: call.GetArguments()})
		}
		if c.GetFinishReason() != "" {
			if choice.FinishReason != "" {
				t.Fatal("finished twice")
			}
			choice.FinishReason = c.GetFinishReason()
		}
	}
	return all
}

// FuzzDecodeAnswer reads an answer both ways, which have to agree.
func FuzzDecodeAnswer(f *testing.F) {
	for _, seed := range answerSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, failed := decode(target("m"), nil, body)
		if (r == nil) == (failed == nil) {
			t.Fatalf("%v and %v", r, failed)
		}
		s := newStream(target("m"), 1, nil)
		chunks, streamFailed := s.take(body)
		last, streamFailed := s.end(streamFailed, false)
		streamed := gathered(t, append(chunks, last...))
		if failed != nil {
			return
		}
		checkMessage(t, r, r.GetExtraJson())
		if u := r.GetUsage(); u.GetInput() < 0 || u.GetOutput() < 0 || u.GetCacheRead() > u.GetInput() || u.GetReasoning() > u.GetOutput() || u.GetOutputAudio() > u.GetOutput() {
			t.Fatalf("usage %v", u)
		}
		for _, c := range r.GetChoices() {
			checkMessage(t, c, c.GetExtraJson(), c.GetLogprobsJson())
			if c.GetFinishReason() == "" {
				t.Fatal("a choice without a finish reason")
			}
			whole := &ktmsv1.Choice{Index: c.GetIndex(), Text: c.GetText(), Reasoning: c.GetReasoning(), FinishReason: c.GetFinishReason(), RawFinishReason: c.GetRawFinishReason()}
			for _, call := range c.GetToolCalls() {
				if call.GetId() == "" {
					t.Fatal("a call without an id")
				}
				whole.ToolCalls = append(whole.ToolCalls, &ktmsv1.ToolCall{Name: call.GetName(), Arguments: call.GetArguments()})
			}
			if streamFailed == nil && !proto.Equal(whole, streamed[c.GetIndex()]) {
				t.Fatalf("whole %v\nstreamed %v", whole, streamed[c.GetIndex()])
			}
			if own := openState("m", c.GetOpaque()); c.GetOpaque() != "" && own.empty() {
				t.Fatalf("state %q cannot be read", c.GetOpaque())
			}
		}
	})
}

// FuzzDecodeStream reads a body as a stream of events.
func FuzzDecodeStream(f *testing.F) {
	f.Add("data: " + strings.Join(answerSeeds, "\n\ndata: ") + "\n\n")
	f.Add(strings.Join(answerSeeds, "\n"))
	f.Add("data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\r\n\r\n{\n\"error\": {\n  \"code\": 503\n}\n}\n")
	f.Fuzz(func(t *testing.T, body string) {
		s := newStream(target("m"), 1, nil)
		var chunks []*ktmsv1.GenerateTextChunk
		failed := readStream(t.Context(), s, strings.NewReader(body), func(e vendors.Event, _ error) bool {
			chunks = append(chunks, e.Chunk)
			return true
		})
		for _, c := range gathered(t, chunks) {
			if failed == nil && c.GetFinishReason() == "" {
				t.Fatal("a clean end without a finish reason")
			}
		}
	})
}

// FuzzBareJSON: nothing of a stream of events may change.
func FuzzBareJSON(f *testing.F) {
	f.Add("data: a\n\ndata: b\r\n\r\nevent: x\rdata: c\r\r", 3)
	f.Fuzz(func(t *testing.T, body string, size int) {
		events := func(r *sse.Reader) (all []string) {
			for {
				e, err := r.Next()
				if err != nil {
					return append(all, string(e.Data), err.Error())
				}
				all = append(all, e.Name+" "+string(e.Data))
			}
		}
		for line := range strings.FieldsFuncSeq(body, func(r rune) bool { return r == '\n' || r == '\r' }) {
			if strings.ContainsRune("{}[]\", \t", rune(line[0])) {
				return
			}
		}
		plain := events(sse.NewReader(strings.NewReader(body)))
		wrapped := events(sse.NewReader(&bareJSON{src: &chopped{strings.NewReader(body), 1 + uint(size)%7}, fresh: true}))
		if strings.Join(plain, "\x00") != strings.Join(wrapped, "\x00") {
			t.Fatalf("%q\nbecame\n%q", plain, wrapped)
		}
	})
}

// chopped gives a few bytes at a time.
type chopped struct {
	src  *strings.Reader
	size uint
}

func (c *chopped) Read(p []byte) (int, error) { return c.src.Read(p[:min(uint(len(p)), c.size)]) }

func FuzzDecodeEmbeddings(f *testing.F) {
	f.Add([]byte(`{"embeddings":[{"values":[1,2.5e-3]}]}`))
	f.Add([]byte(`{"error":{"code":400}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, failed := decodeEmbed(target("m"), &ktmsv1.GetEmbeddingsRequest{Inputs: []string{"a"}, Dimensions: 2}, body)
		if (r == nil) == (failed == nil) {
			t.Fatalf("%v and %v", r, failed)
		}
		if failed == nil && (len(r.GetEmbeddings()) != 1 || len(r.GetEmbeddings()[0].GetVector()) == 0) {
			t.Fatalf("%v", r)
		}
	})
}
