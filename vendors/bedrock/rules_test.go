package bedrock

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

func asking(ids ...string) string {
	out := `messages { role: MESSAGE_ROLE_ASSISTANT `
	for _, id := range ids {
		out += fmt.Sprintf(`tool_calls { id: %q name: "f" } `, id)
	}
	return out + "} "
}

func answering(id, text string) string {
	return fmt.Sprintf(`messages { role: MESSAGE_ROLE_TOOL tool_call_id: %q text: %q } `, id, text)
}

// TestRepeatedIDs: a result belongs to the first call of its id that has none.
func TestRepeatedIDs(t *testing.T) {
	body, _, err := sent(t, target(testClaude), hello+asking("c", "c", "d")+answering("c", "one")+answering("d", "three")+answering("c", "two"))
	second := "call_" + digest("c#0")
	for _, want := range []string{
		`{"toolUse":{"input":{},"name":"f","toolUseId":"c"}},{"toolUse":{"input":{},"name":"f","toolUseId":"` + second + `"}}`,
		`{"toolResult":{"content":[{"text":"one"}],"toolUseId":"c"}},{"toolResult":{"content":[{"text":"two"}],"toolUseId":"` + second + `"}}`,
	} {
		if err != nil || !strings.Contains(body, want) {
			t.Errorf("%v: no %s in\n%s", err, want, body)
		}
	}
	for _, wrong := range []string{answering("c", "one") + answering("c", "two"), answering("c", "1") + asking("c")} {
		_, _, err := sent(t, target(testClaude), hello+asking("c")+wrong)
		var e *vendors.Error
		if !errors.As(err, &e) || e.Kind != vendors.Invalid {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// TestManyOfOneName: what a caller repeats thousands of times costs no more than what it writes.
func TestManyOfOneName(t *testing.T) {
	const many = 20_000
	user, assistant, tool := ktmsv1.MessageRole_MESSAGE_ROLE_USER, ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT, ktmsv1.MessageRole_MESSAGE_ROLE_TOOL
	calls := &ktmsv1.Message{Role: assistant}
	documents := &ktmsv1.Message{Role: user}
	repeated := &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{{Role: user, Text: "x"}, calls}}
	for i := range many {
		calls.ToolCalls = append(calls.ToolCalls, &ktmsv1.ToolCall{Id: "a", Name: fmt.Sprint("f", i)})
		repeated.Messages = append(repeated.Messages, &ktmsv1.Message{Role: tool, ToolCallId: "a", Text: "r"})
		documents.Parts = append(documents.Parts, &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Document{Document: &ktmsv1.DocumentPart{
			Source: &ktmsv1.DocumentPart_Data{Data: []byte("x")}, Filename: "a.txt"}}})
	}
	for name, req := range map[string]*ktmsv1.GenerateTextRequest{"calls": repeated, "documents": {Messages: []*ktmsv1.Message{documents}}} {
		start := time.Now()
		if _, failed := encode(target(testClaude), req); failed != nil {
			t.Errorf("%s: %v", name, failed)
		}
		// Counted from the start each time, these are 200 million hashes or names.
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%s took %v", name, took)
		}
	}
}

// TestLinks: only data: URLs are carried, in all their spellings, and nothing is read with the operator's credential.
func TestLinks(t *testing.T) {
	image := `messages { role: MESSAGE_ROLE_USER parts { image { url: %q } } }`
	document := `messages { role: MESSAGE_ROLE_USER parts { document { url: %q filename: "a.pdf" } } }`
	for _, part := range []string{image, document} {
		for _, url := range []string{"s3://bucket/a.png", "S3://bucket/a.png", "https://x.example/a.png", "file:///etc/passwd"} {
			_, _, err := sent(t, target(testClaude), fmt.Sprintf(part, url))
			var e *vendors.Error
			if !errors.As(err, &e) || e.Kind != vendors.Unsupported {
				t.Errorf("%s: %v", url, err)
			}
		}
		for _, url := range []string{"data:image/png;base64", "data:image/png;base64,a*b", "data:image/png,%zz"} {
			_, _, err := sent(t, target(testClaude), fmt.Sprintf(part, url))
			var e *vendors.Error
			if !errors.As(err, &e) || e.Kind != vendors.Invalid {
				t.Errorf("%s: %v", url, err)
			}
		}
		for _, url := range []string{"data:image/png;base64,_--_", "data:image/png;base64,%2F%2B%2B%2F", "data:image/png;base64,/++/\n", "data:image/png,%FF%EF%BF"} {
			if body, _, err := sent(t, target(testClaude), fmt.Sprintf(part, url)); err != nil || !strings.Contains(body, `"bytes":"/`) {
				t.Errorf("%s: %v %s", url, err, body)
			}
		}
	}
}

// TestHistoryWithoutTools: the tools of the history are declared because they have to be, and not to be called.
func TestHistoryWithoutTools(t *testing.T) {
	history := hello + asking("c") + answering("c", "r")
	body, _, err := sent(t, target(testClaude), history)
	if err != nil || !strings.Contains(body, noCalls) || !strings.Contains(body, `"name":"f"`) || strings.Contains(body, "toolChoice") {
		t.Errorf("%v %s", err, body)
	}
	for name, request := range map[string]string{
		"any of none":    history + `tool_choice { mode: TOOL_CHOICE_MODE_REQUIRED }`,
		"one of none":    history + `tool_choice { mode: TOOL_CHOICE_MODE_FUNCTION function_name: "f" }`,
		"an unknown one": hello + `tools { name: "g" } tool_choice { mode: TOOL_CHOICE_MODE_FUNCTION function_name: "f" }`,
		"declared twice": hello + `tools { name: "g" } tools { name: "g" }`,
	} {
		_, _, err := sent(t, target(testClaude), request)
		var e *vendors.Error
		if !errors.As(err, &e) || e.Kind != vendors.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, _, err = sent(t, target(testClaude), hello+`tools { name: "g" parameters_json: '{"type":["object","null"]}' }`)
	var e *vendors.Error
	if !errors.As(err, &e) || e.Kind != vendors.Unsupported {
		t.Errorf("%v", err)
	}
}

// TestFailedResults: the vendor has a word for a call that went wrong, for the families that read it.
func TestFailedResults(t *testing.T) {
	history := hello + asking("c") + `messages { role: MESSAGE_ROLE_TOOL tool_call_id: "c" text: "r" extra_json: '{"is_error":%s}' } `
	for _, c := range []struct {
		model, flag string
		status      bool
		dropped     int
	}{
		{testClaude, "true", true, 0}, {testClaude, "false", false, 0}, {testClaude, "null", false, 0}, {testClaude, "1", false, 1},
		{"us.amazon.nova-2-lite-v1:0", "true", true, 0}, {"meta.llama4-maverick-17b-instruct-v1:0", "true", false, 1},
	} {
		body, head, err := sent(t, target(c.model), fmt.Sprintf(history, c.flag))
		if err != nil || strings.Contains(body, `"status":"error"`) != c.status || len(head.Dropped) != c.dropped {
			t.Errorf("%+v: %v %v\n%s", c, err, head, body)
		}
	}
}

// TestNothingSaid: null says nothing, and more than a model can write is not asked for.
func TestNothingSaid(t *testing.T) {
	to := target(testClaude)
	to.MaxOutputTokens = 100
	body, head, err := sent(t, to, hello+`max_output_tokens: 200 extra_json: '{"guardrailConfig":null,"thinking":null,"other":null}' strict_params: true`)
	if err != nil || head.Dropped != nil || strings.Contains(body, "guardrail") || strings.Contains(body, "thinking") || !strings.Contains(body, `"maxTokens":100`) {
		t.Errorf("%v %v %s", err, head, body)
	}
}

// TestKindsOfValidation: whose fault a refusal is, told from its words without those that it quotes.
func TestKindsOfValidation(t *testing.T) {
	for _, c := range []struct {
		status     int
		code, body string
		kind       vendors.Kind
	}{
		{424, "ModelErrorException", `{"message":"messages.0: wrong","originalStatusCode":400}`, vendors.Invalid},
		{424, "ModelErrorException", `{"message":"prompt is too long: 3 tokens > 2 maximum","originalStatusCode":400}`, vendors.Overflow},
		{424, "ModelErrorException", `{"message":"slow","originalStatusCode":429}`, vendors.RateLimited},
		{424, "ModelErrorException", `{"message":"x","originalStatusCode":503}`, vendors.Unavailable},
		{424, "ModelErrorException", `{"message":"x"}`, vendors.Unavailable},
		{400, "ValidationException", `{"message":"This model doesn't support tool use."}`, vendors.Unsupported},
		{400, "ValidationException", `{"message":"This model doesn’t support the image content block that you provided. Update your content and try again."}`, vendors.Unsupported},
		{400, "ValidationException", `{"message":"Operation not allowed"}`, vendors.Denied},
		{400, "ValidationException", `{"message":"stop_sequences: \"context window\" is not valid"}`, vendors.Invalid},
		{400, "ValidationException", `{"message":"tools.0.name: 'prompt is too long' does not match ^[a-z]+$"}`, vendors.Invalid},
		{400, "ValidationException", `{"message":"the context window of tools.0 is malformed"}`, vendors.Invalid},
		{400, "ValidationException", `{"message":"input length and ` + "`max_tokens`" + ` exceed context limit: 3 + 2 > 4"}`, vendors.Overflow},
	} {
		h := http.Header{"X-Amzn-Errortype": {c.code}}
		_, err := New(Options{Transport: &carrier{status: c.status, header: h, body: []byte(c.body)}}).Generate(t.Context(), target(testClaude), requested(t, hello))
		var e *vendors.Error
		if !errors.As(err, &e) || e.Kind != c.kind {
			t.Errorf("%s: %+v, want %v", c.body, e, c.kind)
		}
	}
	var e *vendors.Error
	_, err := streamedBody(t, exception(t, "modelStreamErrorException", `{"message":"wrong","originalStatusCode":400,"originalMessage":"prompt is too long"}`))
	if !errors.As(err, &e) || e.Kind != vendors.Overflow {
		t.Errorf("stream: %v", err)
	}
}
