package servertest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

func content(text string) http.HandlerFunc {
	return says(200, fmt.Sprintf(`{"choices":[{"index":0,"message":{"role":"assistant","content":%s},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}`, openaiapi.AppendString(nil, text)))
}

func calls(name, arguments string) http.HandlerFunc {
	return says(200, fmt.Sprintf(`{"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":%q,"arguments":%s}}]},"finish_reason":"tool_calls"}]}`, name, openaiapi.AppendString(nil, arguments)))
}

const (
	wantsAge   = `"response_format":{"type":"json_schema","json_schema":{"name":"age","schema":{"type":"object","properties":{"age":{"type":"integer","minimum":1}},"required":["age"],"additionalProperties":false}}}`
	strictTool = `"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}}}]`
)

// An answer that breaks the schema is tried again once, then the next model is asked; the caller sees one that fits, or
// an error that says what is wrong. The vendor is none (vendors/openai's DeepSeek) that holds schemas itself.
func TestAnswersAreHeldToTheirSchema(t *testing.T) {
	for _, c := range []struct {
		name, ask   string
		first       []http.HandlerFunc
		second      http.HandlerFunc
		want        string
		onFirst, on int // calls of the first and second vendor
	}{
		{"fits at once", wantsAge, []http.HandlerFunc{content(`{"age":3}`)}, nil, `{"age":3}`, 1, 0},
		{"fits in a fence", wantsAge, []http.HandlerFunc{content("```json\n{\"age\":3}\n```")}, nil, `{"age":3}`, 1, 0},
		{"fits the second time", wantsAge, []http.HandlerFunc{content(`{"age":"three"}`), content(`{"age":3}`)}, nil, `{"age":3}`, 2, 0},
		{"falls back", wantsAge, []http.HandlerFunc{content(`{"age":0}`)}, content(`{"age":4}`), `{"age":4}`, 2, 1},
		{"nobody fits", wantsAge, []http.HandlerFunc{content(`{"age":0}`)}, content(`no`), `vendor_error`, 2, 2},
		{"any JSON", `"response_format":{"type":"json_object"}`, []http.HandlerFunc{content(`[1]`), content(`{"a":1}`)}, nil, `{"a":1}`, 2, 0},
		{"strict arguments", strictTool, []http.HandlerFunc{calls("f", `{"n":"x"}`), calls("f", `{"n":1}`)}, nil, `{"n":1}`, 2, 0},
		{"strict arguments that are no JSON", strictTool, []http.HandlerFunc{calls("f", `{"n":`)}, calls("f", `{"n":2}`), `{"n":2}`, 2, 1},
		{"a call was demanded", strictTool + `,"tool_choice":"required"`, []http.HandlerFunc{content("no call"), calls("f", `{"n":1}`)}, nil, `{"n":1}`, 2, 0},
		{"this call was demanded", strings.Replace(strictTool, `]`, `]`, 1) + `,"tool_choice":{"type":"function","function":{"name":"f"}}`, []http.HandlerFunc{calls("g", `{}`)}, calls("f", `{"n":5}`), `{"n":5}`, 2, 1},
		{"a loose tool is not checked", strings.Replace(strictTool, `"strict":true`, `"strict":false`, 1), []http.HandlerFunc{calls("f", `{"n":"x"}`)}, nil, `{"n":"x"}`, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.second == nil {
				c.second = says(500, `{}`)
			}
			a, baseA := record(t, c.first...)
			b, baseB := record(t, c.second)
			s := servertest.Start(t, servertest.Defaults(t))
			first, second := servertest.Model("a", baseA), servertest.Model("b", baseB)
			first.Vendor, second.Vendor = vendors.DeepSeek, vendors.DeepSeek
			key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{first, second}})
			code, _, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, `{"model":"auto",`+c.ask+`,"messages":[{"role":"user","content":"x"}]}`)
			var r struct {
				Choices []struct {
					Message struct {
						Content   string
						ToolCalls []struct{ Function struct{ Arguments string } } `json:"tool_calls"`
					}
				}
				Error struct{ Code, Message string }
			}
			if err := json.Unmarshal([]byte(text), &r); err != nil {
				t.Fatal(err)
			}
			got := r.Error.Code
			if len(r.Choices) == 1 {
				got = r.Choices[0].Message.Content
				if calls := r.Choices[0].Message.ToolCalls; len(calls) > 0 {
					got = calls[0].Function.Arguments
				}
			}
			if got != c.want || a.count() != c.onFirst || b.count() != c.on {
				t.Errorf("%d %q after %d+%d calls: %s", code, got, a.count(), b.count(), text)
			}
			if c.want == "vendor_error" && (code != 502 || !strings.Contains(r.Error.Message, "minimum")) {
				t.Errorf("%d %s", code, r.Error.Message)
			}
		})
	}
}

// What a vendor holds itself is not checked again, and a schema that makes no sense costs no vendor call.
func TestSchemasThatAreHeldElsewhereOrMakeNoSense(t *testing.T) {
	vendor, base := record(t, content("not what was asked for"))
	s := servertest.Start(t, servertest.Defaults(t))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", base)}})
	call := func(ask string) (int, string) {
		code, _, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, `{"model":"m",`+ask+`,"messages":[{"role":"user","content":"x"}]}`)
		return code, text
	}
	if code, text := call(strings.Replace(wantsAge, `"schema":`, `"strict":true,"schema":`, 1)); code != 200 || vendor.count() != 1 {
		t.Errorf("%d %s", code, text)
	}
	for _, ask := range []string{
		`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"any"}}}`,
		`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"$ref":"#/$defs/nowhere"}}}`,
		`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"$ref":"file:///etc/passwd"}}}`,
		`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"$ref":"http://127.0.0.1:1/x"}}}`,
		`"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"properties":7}}}]`,
	} {
		if code, text := call(ask); code != 400 || !strings.Contains(text, `"code":"bad_request"`) || vendor.count() != 1 {
			t.Errorf("%s: %d %s", ask, code, text)
		}
	}
	// A pattern that this language cannot express is no mistake.
	if code, text := call(`"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"string","pattern":"^(?!a)"}}}`); code != 200 {
		t.Errorf("%d %s", code, text)
	}
}
