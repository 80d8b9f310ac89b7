package vendortest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ai-process/ktms/vendors"
)

// Gemini spells Google's generateContent.
func Gemini() Script {
	return Script{
		UnaryType: "application/json; charset=UTF-8", StreamType: "text/event-stream", SSE: true, Reasoning: true, Signed: true,
		Body: geminiBody, Stream: geminiStream,
		Failure: func(message string) string {
			return `{"error":{"code":0,"message":` + quote(message) + `}}`
		},
		Failures: geminiFailures,
		HiddenFailures: []string{
			`{"error":{"code":503,"message":"the engine is down","status":"UNAVAILABLE"}}`,
			`[{"error":{"code":500,"message":"the engine is down","status":"INTERNAL"}}]`,
			"{\n  \"error\": {\n    \"code\": 503,\n    \"message\": \"the engine is down\",\n    \"status\": \"UNAVAILABLE\"\n  }\n}\n",
			`{"error":"the engine is down"}`,
		},
		StreamFailures: []string{
			"data: {\"error\":{\"code\":503,\"message\":\"the engine is down\",\"status\":\"UNAVAILABLE\"}}\n\n",
			"data: {\"error\":{\"message\":\"the engine is down\",\"status\":\"INTERNAL\"}}\r\n\r\n",
			"data: {\"error\":{\"message\":\"the engine is down\"}}\n\n",
			"data: [{\"error\":{\"code\":500,\"message\":\"the engine is down\"}}]\n\n",
			"{\"error\":{\"code\":503,\"message\":\"the engine is down\",\"status\":\"UNAVAILABLE\"}}\n",
			"{\"error\":{\"code\":503,\"message\":\"the engine is down\",\"status\":\"UNAVAILABLE\"}}\n\n",
			"[{\n  \"error\": {\n    \"code\": 500,\n    \"message\": \"the engine is down\",\n    \"status\": \"INTERNAL\"\n  }\n}\n]\n",
			"{\r\n\t\"error\": {\r\n\t\t\"code\": 503,\r\n\t\t\"message\": \"the engine is down\"\r\n\t}\r\n}\r\n",
		},
		Garbage: "data: {\"candidates\":[{]}\n\n",
		FinishReasons: map[string]string{
			"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length",
			"SAFETY": "content_filter", "RECITATION": "content_filter", "BLOCKLIST": "content_filter",
			"PROHIBITED_CONTENT": "content_filter", "SPII": "content_filter", "IMAGE_SAFETY": "content_filter",
			"IMAGE_PROHIBITED_CONTENT": "content_filter", "IMAGE_RECITATION": "content_filter",
			"LANGUAGE": "stop", "OTHER": "stop", "IMAGE_OTHER": "stop", "NO_IMAGE": "stop",
			"MALFORMED_FUNCTION_CALL": MeansBroken, "UNEXPECTED_TOOL_CALL": MeansBroken, "TOO_MANY_TOOL_CALLS": MeansBroken,
		},
		Waits:      geminiWaits,
		Check:      geminiCheck,
		Embeddings: geminiEmbeddings,
	}
}

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func geminiReason(a Answer) string {
	if a.RawFinishReason != "" {
		return a.RawFinishReason
	}
	return map[string]string{"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}[a.FinishReason]
}

// geminiPart spells a part; signature may be empty.
func geminiPart(body, signature string) string {
	if signature != "" {
		body += `,"thoughtSignature":` + quote(signature)
	}
	return "{" + body + "}"
}

// geminiResponse spells a response around what its only candidate holds. An empty one is no candidate.
func geminiResponse(a Answer, candidate, usage string) string {
	var members []string
	if candidate != "" {
		members = append(members, `"candidates":[{`+candidate+`,"index":0,"safetyRatings":[{"category":"HARM_CATEGORY_HARASSMENT","probability":"NEGLIGIBLE"}]}]`)
	}
	if usage != "" {
		members = append(members, `"usageMetadata":`+usage)
	}
	members = append(members, `"modelVersion":`+quote(a.Model), `"responseId":`+quote(a.ID))
	return "{" + strings.Join(members, ",") + "}"
}

func geminiContent(parts ...string) string {
	return `"content":{"parts":[` + strings.Join(parts, ",") + `],"role":"model"}`
}

// geminiUsage spells the usage; thoughts are not among the candidates' tokens.
func geminiUsage(a Answer) string {
	u := a.Usage
	if u == nil {
		return ""
	}
	return fmt.Sprintf(`{"promptTokenCount":%d,"candidatesTokenCount":%d,"totalTokenCount":%d,"cachedContentTokenCount":%d,"thoughtsTokenCount":%d,`+
		`"promptTokensDetails":[{"modality":"TEXT","tokenCount":%d},{"modality":"AUDIO","tokenCount":%d}],`+
		`"candidatesTokensDetails":[{"modality":"AUDIO","tokenCount":%d}]}`,
		u.GetInput(), u.GetOutput()-u.GetReasoning(), u.GetInput()+u.GetOutput(), u.GetCacheRead(), u.GetReasoning(),
		u.GetInput()-u.GetInputAudio(), u.GetInputAudio(), u.GetOutputAudio())
}

// geminiCalls spells the calls; the first carries the signature.
func geminiCalls(a Answer) []string {
	var out []string
	signature := a.Signature
	for _, c := range a.Calls {
		id := ""
		if c.ID != "" {
			id = `"id":` + quote(c.ID) + `,`
		}
		out = append(out, geminiPart(`"functionCall":{`+id+`"name":`+quote(c.Name)+`,"args":`+strings.Join(c.Arguments, "")+`}`, signature))
		signature = ""
	}
	return out
}

func geminiText(text string) string    { return `"text":` + quote(text) }
func geminiThought(text string) string { return geminiPart(geminiText(text)+`,"thought":true`, "") }

func geminiBody(a Answer) string {
	var parts []string
	if a.Reasoning != nil {
		parts = append(parts, geminiThought(strings.Join(a.Reasoning, "")))
	}
	if a.Text != nil {
		signature := a.Signature
		if a.Calls != nil {
			signature = ""
		}
		parts = append(parts, geminiPart(geminiText(strings.Join(a.Text, "")), signature))
	}
	parts = append(parts, geminiCalls(a)...)
	return geminiResponse(a, geminiContent(parts...)+`,"finishReason":`+quote(geminiReason(a)), geminiUsage(a))
}

func geminiStream(a Answer) Stream {
	begun := ""
	if a.Usage != nil { // it grows; the last one counts
		begun = fmt.Sprintf(`{"promptTokenCount":%d,"totalTokenCount":%d,"candidatesTokenCount":1}`, a.Usage.GetInput(), a.Usage.GetInput()+1)
	}
	event := func(candidate, usage string) string {
		return "data: " + geminiResponse(a, candidate, usage) + "\r\n\r\n"
	}
	var s Stream
	for _, piece := range a.Reasoning {
		s.Content = append(s.Content, event(geminiContent(geminiThought(piece)), begun))
	}
	for _, piece := range a.Text {
		s.Content = append(s.Content, event(geminiContent(geminiPart(geminiText(piece), "")), begun))
	}
	for _, call := range geminiCalls(a) {
		s.Content = append(s.Content, event(geminiContent(call), begun))
	}
	signature := a.Signature
	if a.Calls != nil {
		signature = ""
	}
	s.Finish = []string{event(geminiContent(geminiPart(geminiText(""), signature))+`,"finishReason":`+quote(geminiReason(a)), geminiUsage(a))}
	return s
}

func geminiEmbeddings(_ *Call, list [][]float32, _ int64) string {
	var out []string
	for _, v := range list {
		values, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		out = append(out, `{"values":`+string(values)+`}`)
	}
	return `{"embeddings":[` + strings.Join(out, ",") + `]}`
}

const (
	geminiDaily = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"m","quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier","quotaDimensions":{"model":"m"},"quotaValue":"250"}]}`
	geminiPace  = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"m","quotaId":"GenerateRequestsPerMinutePerProjectPerModel","quotaValue":"10"}]}`
	geminiRetry = `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"37s"}`
)

func geminiError(code int, status, message string, details ...string) string {
	return fmt.Sprintf(`{"error":{"code":%d,"message":%s,"status":%q,"details":[%s]}}`, code, quote(message), status, strings.Join(details, ","))
}

var geminiFailures = []Failure{
	{"invalid argument", http.StatusBadRequest, geminiError(400, "INVALID_ARGUMENT", "Invalid JSON payload received."), vendors.Invalid, ""},
	{"invalid field", http.StatusBadRequest, geminiError(400, "INVALID_ARGUMENT", "bad value",
		`{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"generation_config.top_p","description":"d"}]}`), vendors.Invalid, "top_p"},
	{"prompt too long", http.StatusBadRequest, geminiError(400, "INVALID_ARGUMENT",
		"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."), vendors.Overflow, ""},
	{"body too large", http.StatusBadRequest, geminiError(400, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes."), vendors.Overflow, ""},
	{"key refused", http.StatusBadRequest, geminiError(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.",
		`{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com","metadata":{"service":"s"}}`), vendors.Denied, ""},
	{"key refused, in a list", http.StatusBadRequest, "[" + geminiError(400, "INVALID_ARGUMENT", "no",
		`{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}`) + "]", vendors.Denied, ""},
	{"billing off", http.StatusBadRequest, geminiError(400, "FAILED_PRECONDITION", "Please enable billing on your project."), vendors.Denied, ""},
	{"forbidden", http.StatusForbidden, geminiError(403, "PERMISSION_DENIED", "no"), vendors.Denied, ""},
	{"model unknown", http.StatusNotFound, geminiError(404, "NOT_FOUND", "models/x is not found for API version v1beta"), vendors.Denied, ""},
	{"rate", http.StatusTooManyRequests, geminiError(429, "RESOURCE_EXHAUSTED", "slow down", geminiPace, geminiRetry), vendors.RateLimited, ""},
	{"quota of the day", http.StatusTooManyRequests, geminiError(429, "RESOURCE_EXHAUSTED", "quota", geminiDaily, geminiRetry), vendors.Denied, ""},
	{"signature missing", http.StatusBadRequest, geminiError(400, "INVALID_ARGUMENT", "Function call is missing a thought_signature in functionCall parts."), vendors.Unsupported, ""},
	{"signature of another", http.StatusBadRequest, geminiError(400, "INVALID_ARGUMENT", "Corrupted thought signature."), vendors.Unsupported, ""},
	{"not this model", http.StatusBadRequest, geminiError(400, "INVALID_ARGUMENT", "Multiple candidates is not enabled for this model"), vendors.Unsupported, ""},
	{"cancelled by the vendor", 499, geminiError(499, "CANCELLED", "The operation was cancelled."), vendors.Unavailable, ""},
	{"overloaded", http.StatusServiceUnavailable, geminiError(503, "UNAVAILABLE", "The model is overloaded."), vendors.Unavailable, ""},
	{"deadline", http.StatusGatewayTimeout, geminiError(504, "DEADLINE_EXCEEDED", "late"), vendors.Unavailable, ""},
}

func geminiDelay(text string) string {
	return geminiError(429, "RESOURCE_EXHAUSTED", "slow down", geminiPace, `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":`+quote(text)+`}`)
}

var geminiWaits = []Wait{
	{"whole seconds", http.StatusTooManyRequests, nil, geminiDelay("37s"), 37 * time.Second},
	{"a fraction", http.StatusTooManyRequests, nil, geminiDelay("12.5s"), 12500 * time.Millisecond},
	{"nanoseconds", http.StatusTooManyRequests, nil, geminiDelay("0.000000001s"), 1},
	{"zero", http.StatusTooManyRequests, nil, geminiDelay("0s"), 0},
	{"negative", http.StatusTooManyRequests, nil, geminiDelay("-3s"), 0},
	{"nonsense", http.StatusTooManyRequests, nil, geminiDelay("soon"), 0},
	{"absurd", http.StatusTooManyRequests, nil, geminiDelay("9999999s"), 0},
	{"the header wins", http.StatusTooManyRequests, []string{"Retry-After", "3"}, geminiDelay("37s"), 3 * time.Second},
	{"in a list", http.StatusTooManyRequests, nil, "[" + geminiDelay("2s") + "]", 2 * time.Second},
	{"busy", http.StatusServiceUnavailable, nil, geminiError(503, "UNAVAILABLE", "busy", geminiRetry), 37 * time.Second},
	{"not before tomorrow", http.StatusTooManyRequests, nil, geminiError(429, "RESOURCE_EXHAUSTED", "quota", geminiDaily, geminiRetry), 0},
}
