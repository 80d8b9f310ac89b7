package servertest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
	"github.com/ai-process/ktms/vendors/vendortest"
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
		`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"$ref":"#/$defs/nowhere"}}}`,
		`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"$ref":"file:///etc/passwd"}}}`,
		`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"$ref":"http://127.0.0.1:1/x"}}}`,
		`"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"$ref":"#/nowhere"}}}]`,
		`"stream":true,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"$ref":"#/$defs/nowhere"}}}`,
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

// Neither a schema nor an answer can make the checking of it expensive, or break it.
func TestCheckingIsBounded(t *testing.T) {
	var wide, deep strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&wide, `,"p%d":{"type":"string"}`, i)
	}
	for i := range 40 {
		fmt.Fprintf(&deep, `,"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i+1, i, i)
	}
	for name, c := range map[string]struct{ schema, answer string }{
		"wide":              {`{"type":"object","properties":{"p":{"type":"string"}` + wide.String() + `}}`, `{}`},
		"nested":            {strings.Repeat(`{"items":`, 3000) + "{}" + strings.Repeat("}", 3000), `{}`},
		"doubling":          {`{"$ref":"#/$defs/a40","$defs":{"a0":{}` + deep.String() + `}}`, `{}`},
		"a huge multiple":   {`{"multipleOf":1e10000000}`, `1`},
		"a huge answer":     {`{"type":"number","multipleOf":0.1}`, `1e10000000`},
		"a tiny answer":     {`{"type":"number","exclusiveMinimum":5}`, `-1e-10000000`},
		"itself":            {`{"$ref":"#"}`, `{}`},
		"an older draft":    {`{"type":"number","minimum":1,"exclusiveMinimum":true}`, `2`},
		"nullable":          {`{"type":"integer","nullable":true}`, `null`},
		"an unknown type":   {`{"type":"any"}`, `1`},
		"a lenient pattern": {`{"type":"string","pattern":"^(?!a)"}`, `"b"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, base := record(t, content(c.answer))
			options := servertest.Defaults(t)
			options.APITimeout = 20 * time.Second
			s := servertest.Start(t, options)
			m := servertest.Model("m", base)
			m.Vendor = vendors.DeepSeek
			key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{m}})
			began := time.Now()
			code, _, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key,
				`{"model":"m","response_format":{"type":"json_schema","json_schema":{"name":"x","schema":`+c.schema+`}},"messages":[{"role":"user","content":"x"}]}`)
			wants := map[string]int{"nested": 400, "wide": 400, "a huge multiple": 400, "a huge answer": 502, "a tiny answer": 502}
			want := wants[name]
			if want == 0 {
				want = 200
			}
			if code != want || time.Since(began) > options.APITimeout {
				t.Errorf("%d after %v: %.300s", code, time.Since(began), text)
			}
		})
	}
}

// What a client writes out without meaning it makes no difference, whoever answers.
func TestEmptyMembersAreNone(t *testing.T) {
	const body = `{"model":"m","service_tier":"","prediction":null,"tools":[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{}}}}],` +
		`"response_format":{"type":"json_schema","json_schema":{"name":"","description":"","strict":true,"schema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}}},` +
		`"messages":[{"role":"user","name":"","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + tinyPNG + `","detail":""}}]},` +
		`{"role":"assistant","content":"y","refusal":null,"reasoning_content":"","annotations":[],"audio":null,"function_call":null,"tool_calls":null},{"role":"user","content":"z"}]}`
	for _, who := range talkers() {
		up := vendortest.NewUpstream(t)
		up.Reply(vendortest.Respond(http.StatusOK, who.script.Body(vendortest.Answer{ID: "a", Model: "m", Text: []string{`{"a":"b"}`}, FinishReason: "stop"}), "Content-Type", who.script.UnaryType))
		s := servertest.Start(t, servertest.Defaults(t))
		key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{{Id: who.model, Vendor: who.vendor, Endpoint: up.URL, Enabled: true, Capabilities: []string{"vision"}}}})
		code, header, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, strings.Replace(body, `"m"`, `"`+who.model+`"`, 1), "X-KTMS-Strict", "true")
		if code != 200 || header.Get("X-KTMS-Dropped-Params") != "" {
			t.Errorf("%s: %d %v %s", who.vendor, code, header, text)
			continue
		}
		if call := string(up.Await(0).Body); !strings.Contains(call, `\"a\"`) && !strings.Contains(call, `"a"`) {
			t.Errorf("%s: the schema is lost in %s", who.vendor, call)
		}
	}
}

// Beta headers of several lines travel as one; a header that is neither true nor false is a mistake.
func TestHeadersOfTheHTTPDoor(t *testing.T) {
	vendor, base := record(t, says(200, okAnswer))
	s := servertest.Start(t, servertest.Defaults(t))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", base)}})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.HTTP+"/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header["Openai-Beta"] = []string{"a-1", "b-2"}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := vendor.headers[0].Get("Openai-Beta"); resp.StatusCode != http.StatusOK || got != "a-1,b-2" {
		t.Errorf("%d, %q", resp.StatusCode, got)
	}
	code, _, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, `{"model":"m","messages":[{"role":"user","content":"x"}]}`, "X-KTMS-Strict", "perhaps")
	if code != 400 || !strings.Contains(text, "X-KTMS-Strict") {
		t.Errorf("%d %s", code, text)
	}
}
