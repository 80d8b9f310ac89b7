package vendortest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/ai-process/ktms/vendors"
)

// Bedrock spells Amazon Bedrock's Converse and ConverseStream, called in a region.
func Bedrock(region string) Script {
	return Script{
		UnaryType: "application/json", StreamType: "application/vnd.amazon.eventstream", Nameless: true,
		Reasoning: true, ReasoningUncounted: true, Signed: true, CacheWrites: true, CacheWrites1H: true,
		Body: bedrockBody, Stream: bedrockStream,
		Failure:  func(message string) string { return bedrockJSON(fields{"message": message}) },
		Failures: bedrockFailures,
		HiddenFailures: []string{
			`{"message":"the engine is down"}`,
			`{"__type":"InternalServerException","message":"the engine is down"}`,
			`{"output":{"message":{"role":"assistant","content":[]}},"message":"the engine is down"}`,
			`{}`,
		},
		StreamFailures: []string{
			bedrockException("internalServerException", fields{"message": "the engine is down"}),
			bedrockException("serviceUnavailableException", fields{"message": "the engine is down"}),
			bedrockException("modelStreamErrorException", fields{"message": "the engine is down", "originalStatusCode": 500}),
			bedrockException("modelStreamErrorException", fields{"originalMessage": "the engine is down", "originalStatusCode": 500}),
			bedrockException("brandNewException", fields{"message": "the engine is down"}),
			bedrockFrame("", map[string]string{":message-type": "error", ":error-code": "InternalFailure", ":error-message": "the engine is down"}),
		},
		Garbage: bedrockGarbage(),
		FinishReasons: map[string]string{
			"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls", "max_tokens": "length",
			"model_context_window_exceeded": "length", "guardrail_intervened": MeansBlocked, "content_filtered": MeansBlocked,
			"malformed_model_output": MeansBroken, "malformed_tool_use": MeansBroken,
		},
		Waits: []Wait{
			{"throttled, without a wait", http.StatusTooManyRequests, []string{"X-Amzn-Errortype", "ThrottlingException:http://internal.amazon.com/coral/"},
				`{"message":"Too many requests, please wait before trying again."}`, 0},
			{"throttled by a proxy", http.StatusTooManyRequests, []string{"X-Amzn-Errortype", "ThrottlingException", "Retry-After", "7"},
				`{"message":"slow down"}`, 7 * time.Second},
			{"a model that wakes up", http.StatusTooManyRequests, []string{"X-Amzn-Errortype", "ModelNotReadyException", "Retry-After", "2"},
				`{"message":"Model is not ready for inference."}`, 2 * time.Second},
		},
		Check: func(c *Call) string { return checkBedrock(c, region) },
	}
}

type fields = map[string]any

func bedrockJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// bedrockFrame is one message of an event stream.
func bedrockFrame(payload string, headers map[string]string) string {
	m := eventstream.Message{Payload: []byte(payload)}
	for name, value := range headers {
		m.Headers.Set(name, eventstream.StringValue(value))
	}
	var out bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&out, m); err != nil {
		panic(err)
	}
	return out.String()
}

// bedrockEvent is one event. The vendor pads them, against eavesdroppers who measure.
func bedrockEvent(kind string, payload fields) string {
	payload["p"] = "abcdefg"
	return bedrockFrame(bedrockJSON(payload), map[string]string{
		":event-type": kind, ":content-type": "application/json", ":message-type": "event",
	})
}

func bedrockException(kind string, payload fields) string {
	return bedrockFrame(bedrockJSON(payload), map[string]string{
		":exception-type": kind, ":content-type": "application/json", ":message-type": "exception",
	})
}

// bedrockGarbage is an event whose checksum is wrong.
func bedrockGarbage() string {
	frame := []byte(bedrockEvent("contentBlockDelta", fields{"contentBlockIndex": 0, "delta": fields{"text": "x"}}))
	frame[len(frame)-1] ^= 1
	return string(frame)
}

func bedrockReason(a Answer) string {
	if a.RawFinishReason != "" {
		return a.RawFinishReason
	}
	return map[string]string{"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "content_filtered"}[a.FinishReason]
}

// bedrockUsage counts the prompt cache beside the input, and what was written both as a whole and by its lifetime.
func bedrockUsage(a Answer) fields {
	u := a.Usage
	written := u.GetCacheWrite() + u.GetCacheWrite_1H()
	out := fields{
		"inputTokens": u.GetInput() - u.GetCacheRead() - written, "outputTokens": u.GetOutput(), "totalTokens": u.GetInput() + u.GetOutput(),
		"cacheReadInputTokens": u.GetCacheRead(), "cacheWriteInputTokens": written,
	}
	if written > 0 {
		out["cacheDetails"] = []fields{{"ttl": "1h", "inputTokens": u.GetCacheWrite_1H()}, {"ttl": "5m", "inputTokens": u.GetCacheWrite()}}
	}
	return out
}

func bedrockBody(a Answer) string {
	content := []any{}
	if len(a.Reasoning) > 0 || a.Signature != "" {
		reasoning := fields{"text": strings.Join(a.Reasoning, "")}
		if a.Signature != "" {
			reasoning["signature"] = a.Signature
		}
		content = append(content, fields{"reasoningContent": fields{"reasoningText": reasoning}})
	}
	if a.Text != nil {
		content = append(content, fields{"text": strings.Join(a.Text, "")})
	}
	for _, c := range a.Calls {
		content = append(content, fields{"toolUse": fields{
			"toolUseId": c.ID, "name": c.Name, "input": json.RawMessage(strings.Join(c.Arguments, "")),
		}})
	}
	out := fields{
		"metrics": fields{"latencyMs": 551}, "stopReason": bedrockReason(a),
		"output": fields{"message": fields{"role": "assistant", "content": content}},
	}
	if a.Usage != nil {
		out["usage"] = bedrockUsage(a)
	}
	return bedrockJSON(out)
}

func bedrockStream(a Answer) Stream {
	s := Stream{
		Preamble: []string{bedrockEvent("messageStart", fields{"role": "assistant"})},
		Finish:   []string{bedrockEvent("messageStop", fields{"stopReason": bedrockReason(a)})},
	}
	block := 0
	// add writes the deltas of a block; its end comes with the last, so that each piece says something.
	add := func(deltas ...fields) {
		for _, d := range deltas {
			s.Content = append(s.Content, bedrockEvent("contentBlockDelta", fields{"contentBlockIndex": block, "delta": d}))
		}
		s.Content[len(s.Content)-1] += bedrockEvent("contentBlockStop", fields{"contentBlockIndex": block})
		block++
	}
	if len(a.Reasoning) > 0 || a.Signature != "" {
		var deltas []fields
		for _, piece := range a.Reasoning {
			deltas = append(deltas, fields{"reasoningContent": fields{"text": piece}})
		}
		if a.Signature != "" {
			deltas = append(deltas, fields{"reasoningContent": fields{"signature": a.Signature}})
		}
		add(deltas...)
	}
	if len(a.Text) > 0 {
		var deltas []fields
		for _, piece := range a.Text {
			deltas = append(deltas, fields{"text": piece})
		}
		add(deltas...)
	}
	for _, c := range a.Calls {
		s.Content = append(s.Content, bedrockEvent("contentBlockStart", fields{
			"contentBlockIndex": block, "start": fields{"toolUse": fields{"toolUseId": c.ID, "name": c.Name}}}))
		var deltas []fields
		for _, piece := range c.Arguments {
			deltas = append(deltas, fields{"toolUse": fields{"input": piece}})
		}
		add(deltas...)
	}
	metrics := fields{"metrics": fields{"latencyMs": 551}}
	if a.Usage != nil {
		metrics["usage"] = bedrockUsage(a)
		s.Usage = []string{bedrockEvent("metadata", metrics)}
	} else {
		s.End = []string{bedrockEvent("metadata", metrics)}
	}
	return s
}

func bedrockError(kind, message string) string {
	return bedrockJSON(fields{"__type": kind, "message": message})
}

var bedrockFailures = []Failure{
	{"invalid", http.StatusBadRequest, bedrockError("ValidationException", "messages: roles must alternate"), vendors.Invalid, ""},
	{"prompt too long", http.StatusBadRequest, bedrockError("ValidationException", "Input is too long for requested model."), vendors.Overflow, ""},
	{"prompt too long, Claude", http.StatusBadRequest, bedrockError("ValidationException", "The model returned the following errors: prompt is too long: 210000 tokens > 200000 maximum"), vendors.Overflow, ""},
	{"model unknown", http.StatusBadRequest, bedrockError("ValidationException", "The provided model identifier is invalid."), vendors.Denied, ""},
	{"model needs a profile", http.StatusBadRequest, bedrockError("ValidationException", "Invocation of model ID x with on-demand throughput isn’t supported. Retry your request with the ID or ARN of an inference profile that contains this model."), vendors.Denied, ""},
	{"model not found", http.StatusNotFound, bedrockError("com.amazonaws.bedrock#ResourceNotFoundException", "This model version has reached the end of its life."), vendors.Denied, ""},
	{"no access", http.StatusForbidden, bedrockError("AccessDeniedException", "You don't have access to the model with the specified model ID."), vendors.Denied, ""},
	{"key unknown", http.StatusForbidden, bedrockError("UnrecognizedClientException", "The security token included in the request is invalid."), vendors.Denied, ""},
	{"key expired", http.StatusForbidden, bedrockError("ExpiredTokenException", "The security token included in the request is expired"), vendors.Denied, ""},
	{"signature", http.StatusForbidden, bedrockError("InvalidSignatureException", "The request signature we calculated does not match the signature you provided."), vendors.Denied, ""},
	{"quota", http.StatusBadRequest, bedrockError("ServiceQuotaExceededException", "Your request exceeds the service quota for your account."), vendors.Denied, ""},
	{"conflict", http.StatusBadRequest, bedrockError("ConflictException", "conflict"), vendors.Unavailable, ""},
	{"rate", http.StatusTooManyRequests, bedrockError("ThrottlingException", "Too many tokens, please wait before trying again."), vendors.RateLimited, ""},
	{"not ready", http.StatusTooManyRequests, bedrockError("ModelNotReadyException", "not ready"), vendors.RateLimited, ""},
	{"model failed", http.StatusFailedDependency, bedrockError("ModelErrorException", "The model failed."), vendors.Unavailable, ""},
	{"model failed, without a name", http.StatusFailedDependency, `{"message":"The model failed."}`, vendors.Unavailable, ""},
	{"model timed out", http.StatusRequestTimeout, bedrockError("ModelTimeoutException", "timeout"), vendors.Unavailable, ""},
	{"server", http.StatusInternalServerError, bedrockError("InternalServerException", "internal"), vendors.Unavailable, ""},
	{"unavailable", http.StatusServiceUnavailable, bedrockError("ServiceUnavailableException", "busy"), vendors.Unavailable, ""},
	{"without a message", http.StatusForbidden, `{"__type":"AccessDeniedException"}`, vendors.Denied, ""},
}
