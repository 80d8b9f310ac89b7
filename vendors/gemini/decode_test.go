package gemini

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

func answer(t *testing.T, body string) *ktmsv1.GenerateTextResponse {
	t.Helper()
	r, failed := decode(target("gemini-4-argon"), map[string]string{"_2f": "2f"}, []byte(body))
	if failed != nil {
		t.Fatalf("%v: %s", failed, body)
	}
	return r
}

func TestFinishReasons(t *testing.T) {
	const spoken, called = `{"text":"x"}`, `{"functionCall":{"name":"f"}}`
	for _, c := range []struct{ reason, parts, want string }{
		{"STOP", spoken, "stop"}, {"STOP", "", "stop"}, {"STOP", called, "tool_calls"}, {"STOP", spoken + "," + called, "tool_calls"},
		{"MAX_TOKENS", spoken, "length"}, {"MAX_TOKENS", "", "length"}, {"MAX_TOKENS", called, "length"}, {"CONTINUATION", spoken, "length"},
		{"SAFETY", "", "content_filter"}, {"SAFETY", called, "content_filter"}, {"RECITATION", spoken, "content_filter"}, {"BLOCKLIST", "", "content_filter"},
		{"PROHIBITED_CONTENT", "", "content_filter"}, {"SPII", "", "content_filter"}, {"IMAGE_SAFETY", "", "content_filter"},
		{"IMAGE_PROHIBITED_CONTENT", "", "content_filter"}, {"IMAGE_RECITATION", "", "content_filter"},
		{"LANGUAGE", "", "stop"}, {"OTHER", "", "stop"}, {"OTHER", called, "tool_calls"}, {"IMAGE_OTHER", "", "stop"}, {"NO_IMAGE", "", "stop"},
		{"BRAND_NEW", "", "stop"}, {"BRAND_NEW", called, "tool_calls"},
		{"MALFORMED_FUNCTION_CALL", spoken, "error"}, {"UNEXPECTED_TOOL_CALL", spoken + "," + called, "error"}, {"TOO_MANY_TOOL_CALLS", spoken, "error"}, {"MALFORMED_FUNCTION_CALL", "", "error"}, {"UNEXPECTED_TOOL_CALL", "", "error"},
		{"TOO_MANY_TOOL_CALLS", "", "error"}, {"MALFORMED_FUNCTION_CALL", `{"text":"x","thought":true}`, "error"},
		{"", spoken, "stop"}, {"", "", "error"}, {"FINISH_REASON_UNSPECIFIED", spoken, "stop"}, {"FINISH_REASON_UNSPECIFIED", "", "error"},
	} {
		body := `{"candidates":[{"content":{"parts":[` + c.parts + `]},"finishReason":"` + c.reason + `"}]}`
		r, failed := decode(target(""), nil, []byte(body))
		if c.want == "error" {
			if failed == nil || failed.Kind != vendors.Unavailable {
				t.Errorf("%s %s: %v", c.reason, c.parts, failed)
			}
			continue
		}
		raw := c.reason
		if raw == unspecified {
			raw = ""
		}
		if choice := r.GetChoices()[0]; failed != nil || choice.GetFinishReason() != c.want || choice.GetRawFinishReason() != raw {
			t.Errorf("%s %s: %v %v", c.reason, c.parts, failed, choice)
		}
	}
}

func TestUsage(t *testing.T) {
	for name, c := range map[string]struct {
		wire string
		want *ktmsv1.TokensUsage
	}{
		"none": {"", nil},
		"all": {`{"promptTokenCount":100,"cachedContentTokenCount":60,"candidatesTokenCount":20,"thoughtsTokenCount":30,"toolUsePromptTokenCount":7,"totalTokenCount":157,
			"promptTokensDetails":[{"modality":"TEXT","tokenCount":90},{"modality":"AUDIO","tokenCount":10}],"candidatesTokensDetails":[{"modality":"AUDIO","tokenCount":4}]}`,
			&ktmsv1.TokensUsage{Input: 107, Output: 50, CacheRead: 60, Reasoning: 30, InputAudio: 10, OutputAudio: 4}},
		"empty":     {`{"promptTokenCount":0,"trafficType":"ON_DEMAND"}`, nil},
		"negative":  {`{"promptTokenCount":-5,"candidatesTokenCount":-1,"thoughtsTokenCount":3}`, &ktmsv1.TokensUsage{Output: 3, Reasoning: 3}},
		"in quotes": {`{"promptTokenCount":"12","candidatesTokenCount":null}`, &ktmsv1.TokensUsage{Input: 12}},
		"nonsense":  {`{"promptTokenCount":{},"cachedContentTokenCount":9}`, nil},
		"absurd":    {`{"promptTokenCount":1e300,"toolUsePromptTokenCount":1e300}`, &ktmsv1.TokensUsage{Input: 2 * maxCount}},
	} {
		body := `{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}]`
		if c.wire != "" {
			body += `,"usageMetadata":` + c.wire
		}
		if got := answer(t, body+"}").GetUsage(); !proto.Equal(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAnswers(t *testing.T) {
	r := answer(t, `{"candidates":[{"content":{"parts":[
		{"text":"let me ","thought":true},{"text":"think","thought":true,"thoughtSignature":"th"},
		{"toolCall": {"id":"s1"} ,"thoughtSignature":"<s>"},
		{"text":"a"},{"text":"b","thoughtSignature":"sig"},
		{"inlineData":{"mimeType":"image/png","data":"aGk="}},{"executableCode":{"code":"1 < 2"}},
		{"functionCall":{"name":"_2f","args":{"z": 1.0, "a":"<&>"}},"thoughtSignature":"c1"},{"functionCall":{"id":"own","name":"g"}}]},
		"finishReason":"STOP","safetyRatings":[{}],
		"groundingMetadata":{"webSearchQueries":["q"],"groundingChunks":[{"web":{"uri":"https://w.example","title":"T"}},{"retrievedContext":{}}]},
		"logprobsResult":{"chosenCandidates":[{"token":"a","tokenId":1,"logProbability":-0.250},{"token":"b"}],"topCandidates":[{"candidates":[{"token":"a","logProbability":-0.250}]}]}}],
		"usageMetadata":{"trafficType":"ON_DEMAND_FLEX"},"modelVersion":"v","responseId":"i"}`)
	c := r.GetChoices()[0]
	if r.GetVendorModel() != "v" || r.GetVendorResponseId() != "i" || r.GetServiceTier() != "flex" {
		t.Errorf("%v", r)
	}
	if c.GetText() != "ab" || c.GetReasoning() != "let me think" || c.GetFinishReason() != "tool_calls" || c.GetRawFinishReason() != "STOP" {
		t.Errorf("%v", c)
	}
	if calls := c.GetToolCalls(); len(calls) != 2 || calls[0].GetName() != "2f" || calls[0].GetArguments() != `{"z": 1.0, "a":"<&>"}` ||
		!strings.HasPrefix(calls[0].GetId(), "call_") || calls[1].GetId() != "own" || calls[1].GetArguments() != "{}" || calls[1].GetType() != "function" {
		t.Errorf("%v", calls)
	}
	const extra = `{"images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}],"content_parts":[{"executableCode":{"code":"1 < 2"}}],` +
		`"grounding_metadata":{"webSearchQueries":["q"],"groundingChunks":[{"web":{"uri":"https://w.example","title":"T"}},{"retrievedContext":{}}]},` +
		`"annotations":[{"type":"url_citation","url_citation":{"start_index":0,"end_index":0,"url":"https://w.example","title":"T"}}]}`
	if c.GetExtraJson() != extra {
		t.Error(c.GetExtraJson())
	}
	const logprobs = `{"content":[{"token":"a","logprob":-0.250,"bytes":null,"top_logprobs":[{"token":"a","logprob":-0.250,"bytes":null}]},` +
		`{"token":"b","logprob":0,"bytes":null,"top_logprobs":[]}],"refusal":null}`
	if c.GetLogprobsJson() != logprobs {
		t.Error(c.GetLogprobsJson())
	}
	s := openState("gemini-4-argon", c.GetOpaque())
	if s.Text != "sig" || len(s.Calls) != 2 || s.Calls[0] != "c1" || s.Calls[1] != "" || len(s.Server) != 1 || s.Server[0] != `{"toolCall": {"id":"s1"} ,"thoughtSignature":"<s>"}` {
		t.Errorf("%+v", s)
	}
}

func TestNoAnswers(t *testing.T) {
	for body, want := range map[string]string{
		`{"promptFeedback":{"blockReason":"SAFETY","safetyRatings":[]},"usageMetadata":{"promptTokenCount":4}}`: "blocked: the prompt was blocked: SAFETY",
		`{"promptFeedback":{"blockReason":"OTHER","blockReasonMessage":"why"},"candidates":[]}`:                 "blocked: the prompt was blocked: OTHER: why",
		`{}`:                            "unavailable: ",
		`{"candidates":null}`:           "unavailable: ",
		`{"promptFeedback":{}}`:         "unavailable: ",
		`{"candidates":[{"index":8}]}`:  "unavailable: answered with a candidate that was not asked for",
		`{"candidates":[{"index":-1}]}`: "unavailable: answered with a candidate that was not asked for",
		`[]`:                            "unavailable: ",
		`[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}]`:      "rate_limited: m",
		`{"error":{"message":"m","status":"PERMISSION_DENIED"}}`:                    "denied: m",
		`{"error":{"code":400,"message":"m exceeds the maximum number of tokens"}}`: "overflow: m",
		`{"error":"m"}`: "unavailable: m",
		`<html>`:        "unavailable: answered with something that is not the API's JSON",
	} {
		if _, failed := decode(target(""), nil, []byte(body)); failed == nil || !strings.HasPrefix(failed.Kind.String()+": "+failed.Message, want) {
			t.Errorf("%s: %v", body, failed)
		}
		s := newStream(target(""), 1, nil)
		_, failed := s.take([]byte(body))
		last, failed := s.end(failed, false)
		if failed == nil || strings.HasPrefix(want, "blocked") && failed.Kind != vendors.Blocked {
			t.Errorf("streamed %s: %v", body, failed)
		}
		if strings.Contains(body, "promptTokenCount") && (len(last) != 1 || last[0].GetUsage().GetInput() != 4) {
			t.Errorf("the usage of %s is lost: %v", body, last)
		}
	}
}

// A stream says things once, whatever the vendor repeats.
func TestStream(t *testing.T) {
	s := newStream(target("gemini-4-argon"), 2, nil)
	var all []*ktmsv1.GenerateTextChunk
	for _, data := range []string{
		`{"usageMetadata":{"promptTokenCount":3,"trafficType":"ON_DEMAND"},"modelVersion":"v","responseId":"i"}`,
		`{"candidates":[{"content":{"parts":[{"text":"a"}]}},{"index":1,"content":{"parts":[{"functionCall":{"name":"f"}}]},"finishReason":"FINISH_REASON_UNSPECIFIED"}],"modelVersion":"v","responseId":"i"}`,
		`{"candidates":[{"index":1,"content":{"parts":[{"functionCall":{"name":"g"},"thoughtSignature":"s"}]}}]}`,
		`{"candidates":[{"groundingMetadata":{"webSearchQueries":["q"]}}]}`,
		`{"unknown":{"x":1}}`,
		`{"candidates":[{"index":1,"finishReason":"STOP"},{"content":{"parts":[{"text":"","thoughtSignature":"t"}]},"finishReason":"STOP"}]}`,
		`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":5,"trafficType":"ON_DEMAND"}}`,
	} {
		chunks, failed := s.take([]byte(data))
		if failed != nil {
			t.Fatal(failed)
		}
		all = append(all, chunks...)
	}
	last, failed := s.end(nil, false)
	if n := len(last); failed != nil || n == 0 || last[n-1].GetUsage().GetOutput() != 5 {
		t.Fatalf("%v %v", last, failed)
	}
	all = append(all, last...)
	texts := map[int32]string{}
	for _, c := range all {
		texts[c.GetIndex()] += c.GetVendorModel() + c.GetVendorResponseId() + c.GetServiceTier() + c.GetDelta() + c.GetFinishReason() + c.GetExtraJson()
		for _, call := range c.GetToolCallChunks() {
			texts[c.GetIndex()] += call.GetName() + string('0'+call.GetIndex())
		}
		if c.GetOpaque() != "" && c.GetFinishReason() == "" {
			t.Error("opaque state before the end")
		}
	}
	if texts[0] != `vistandardastop{"grounding_metadata":{"webSearchQueries":["q"]}}` || texts[1] != "f0g1tool_calls" {
		t.Errorf("%q", texts)
	}
}

func TestDetailsOfErrors(t *testing.T) {
	for field, want := range map[string]string{
		"generation_config.max_output_tokens": "max_tokens", "generationConfig.stopSequences": "stop", "contents[0].parts": "contents[0].parts",
		"generation_config.thinking_config.thinking_level": "reasoning_effort",
	} {
		said := readError([]byte(`{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT","details":[{"@type":"x"},{"fieldViolations":[{"field":"` + field + `"}]}]}}`))
		if e := apiError(target(""), 400, said); e.Param != want || e.Kind != vendors.Invalid {
			t.Errorf("%s: %+v", field, e)
		}
	}
}
