package vendortest

import (
	"net/http"
	"strings"
	"testing"
)

// What the vendor refuses, the check has to refuse, or it proves nothing.
func TestGeminiCheck(t *testing.T) {
	const hi = `{"role":"user","parts":[{"text":"hi"}]}`
	ask := func(signature string) string {
		return hi + `,{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}` + signature + `}]}`
	}
	const signed = `,"thoughtSignature":"s"`
	const reply = `,{"role":"user","parts":[{"functionResponse":{"name":"f","response":{}}}]}`
	contents := func(turns string) string { return `{"contents":[` + turns + `]}` }
	beside := func(members string) string { return `{"contents":[` + hi + `],` + members + `}` }
	tools := func(schema string) string {
		return beside(`"tools":[{"functionDeclarations":[{"name":"f","parametersJsonSchema":` + schema + `}]}]`)
	}
	check := func(model, body string) string {
		return geminiCheck(&Call{Method: http.MethodPost, Path: "/v1beta/models/" + model + ":generateContent",
			Header: http.Header{"X-Goog-Api-Key": {"k"}}, Body: []byte(body)})
	}
	for _, body := range []string{
		contents(hi), contents(ask(signed) + reply), tools(`{"type":"object","properties":{"pattern":{"type":["string","null"]}}}`),
		beside(`"generationConfig":{"responseMimeType":"application/json","responseJsonSchema":{"anyOf":[{"enum":["a",1]}]}}`),
		beside(`"tools":[{"googleSearch":{}}],"serviceTier":"flex"`),
	} {
		if wrong := check("gemini-4-argon", body); wrong != "" {
			t.Errorf("%s: %s", body, wrong)
		}
	}
	for _, c := range []struct{ model, body, want string }{
		{"gemini-4-argon", `{}`, "contents is missing"}, {"gemini-4-argon", contents(""), "empty"}, {"gemini-4-argon", contents(hi) + "x", "follows"},
		{"gemini-4-argon", contents(`{"role":"assistant","parts":[{"text":"x"}]}`), "invalid value"}, {"gemini-4-argon", contents(`{"role":"user","parts":[]}`), "empty"},
		{"gemini-4-argon", contents(`{"role":"user","parts":[{"text":""}]}`), "empty"}, {"gemini-4-argon", contents(`{"role":"user","parts":[{"text":"x","inlineData":{"mimeType":"image/png","data":"aGk="}}]}`), "exactly one"},
		{"gemini-4-argon", contents(`{"role":"user","parts":[{"inlineData":{"mimeType":"x/y","data":"aGk="}}]}`), "MIME"}, {"gemini-4-argon", contents(`{"role":"model","parts":[{"text":"x"}]}`), "first turn"},
		{"gemini-4-argon", contents(ask("") + reply), "thought_signature"}, {"gemini-4-argon", contents(ask(signed)), "without responses"}, {"gemini-4-argon", contents(ask(signed) + "," + hi), "number of function response"},
		{"gemini-4-argon", contents(hi + reply), "number of function response"}, {"gemini-4-argon", contents(ask(signed) + strings.Replace(reply, `"f"`, `"g"`, 1)), "another call"},
		{"gemini-4-argon", beside(`"max_tokens":1`), "Unknown name"}, {"gemini-4-argon", beside(`"generationConfig":{"temperature":1}`), "Unknown name"}, {"gemini-3.8-flash", beside(`"generationConfig":{"temperature":3}`), "invalid value"},
		{"gemini-4-argon", beside(`"generationConfig":{"candidateCount":9}`), "invalid value"}, {"gemini-4-argon", beside(`"generationConfig":{"seed":4294967296}`), "invalid value"}, {"gemini-4-argon", beside(`"generationConfig":{"logprobs":1}`), "responseLogprobs"},
		{"gemini-4-argon", beside(`"generationConfig":{"stopSequences":["a","b","c","d","e","f"]}`), "five"}, {"gemini-4-argon", beside(`"generationConfig":{"responseJsonSchema":{}}`), "mime type"},
		{"gemini-4-argon", beside(`"generationConfig":{"thinkingConfig":{"thinkingLevel":"MINIMAL"}}`), "invalid value"}, {"gemini-4-argon", beside(`"generationConfig":{"thinkingConfig":{"thinkingBudget":1}}`), "Unknown name"},
		{"gemini-2.5-flash", beside(`"generationConfig":{"thinkingConfig":{"thinkingLevel":"LOW"}}`), "Unknown name"}, {"gemini-4-argon", beside(`"serviceTier":"default"`), "invalid value"},
		{"gemini-4-argon", beside(`"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}`), "without function_declarations"},
		{"gemini-4-argon", beside(`"tools":[{"functionDeclarations":[{"name":"f"},{"name":"f"}]}]`), "Duplicate"}, {"gemini-4-argon", beside(`"tools":[{"functionDeclarations":[{"name":"2f"}]}]`), "Invalid function name"},
		{"gemini-4-argon", beside(`"tools":[{"functionDeclarations":[{"name":"f"}]},{"googleSearch":{}}]`), "server_side"}, {"gemini-2.5-pro", beside(`"tools":[{"functionDeclarations":[{"name":"f"}]},{"googleSearch":{}}]`), "unsupported"},
		{"gemini-2.5-pro", beside(`"tools":[{"functionDeclarations":[{"name":"f"}]}],"generationConfig":{"responseMimeType":"application/json"}`), "unsupported"},
		{"gemini-4-argon", tools(`{"type":"object","pattern":"x"}`), "Unknown name"}, {"gemini-4-argon", tools(`{"type":"OBJECT"}`), "invalid value"}, {"gemini-4-argon", tools(`{"type":"string"}`), "of an object"},
		{"gemini-4-argon", tools(`{"type":"object","properties":{"a":{"$ref":"#"}}}`), "Unknown name"}, {"gemini-4-argon", tools(`{"type":"object","properties":{"a":{"enum":[null]}}}`), "enum"}, {"gemini-4-argon", tools(`{"type":"object","properties":{"a":{"const":1}}}`), "Unknown name"},
	} {
		if wrong := check(c.model, c.body); !strings.Contains(wrong, c.want) {
			t.Errorf("%s: %q, want %q", c.body, wrong, c.want)
		}
	}
	call := &Call{Method: http.MethodPost, Path: "/v1beta/models/m:generateContent", Query: "key=k", Header: http.Header{"X-Goog-Api-Key": {"k"}}, Body: []byte(contents(hi))}
	if geminiCheck(call) == "" {
		t.Error("a key in the URL passes")
	}
}
