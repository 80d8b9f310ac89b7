package vendortest

import (
	"net/http"
	"strings"
	"testing"
)

func bedrockCall(model, body string) *Call {
	return &Call{Path: "/model/" + model + "/converse", Body: []byte(body), Header: http.Header{
		"Content-Type": {"application/json"}, "X-Amz-Date": {"20261130T000000Z"},
		"Authorization": {"AWS4-HMAC-SHA256 Credential=AKIA/20261130/us-east-1/bedrock/aws4_request, " +
			"SignedHeaders=content-type;host;x-amz-date, Signature=" + strings.Repeat("0a", 32)},
	}}
}

// TestBedrockCheck: the strict upstream says no to what the vendor refuses, so that a dialect's mistake is seen.
func TestBedrockCheck(t *testing.T) {
	const claude, newest = "anthropic.claude-opus-4-6-v1", "anthropic.claude-opus-5-5"
	check := Bedrock("us-east-1").Check
	user := func(blocks string) string { return `{"messages":[{"role":"user","content":[` + blocks + `]}]}` }
	hi := `"messages":[{"role":"user","content":[{"text":"hi"}]}]`
	use := `{"role":"assistant","content":[{"toolUse":{"toolUseId":"a","name":"f","input":{}}}]}`
	result := `{"toolResult":{"toolUseId":"a","content":[{"text":"r"}]}}`
	tools := `"toolConfig":{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{"type":"object"}}}}]}`
	begin := `{"messages":[{"role":"user","content":[{"text":"hi"}]},`
	for _, good := range []string{
		`{` + hi + `}`, `{` + hi + `,"inferenceConfig":{"temperature":0.7},"system":[{"text":"s"}],"serviceTier":{"type":"flex"}}`,
		begin + use + `,{"role":"user","content":[` + result + `,{"text":"so?"}]}],` + tools + `}`,
		`{` + hi + `,"outputConfig":{"effort":"max","textFormat":{"type":"json_schema","structure":{"jsonSchema":{"schema":"{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}"}}}}}`,
	} {
		if wrong := check(bedrockCall(claude, good)); wrong != "" {
			t.Errorf("%s: %s", good, wrong)
		}
	}
	for name, bad := range map[string]string{
		"no messages": `{}`, "no turns": `{"messages":[]}`, "unknown member": `{` + hi + `,"stream":true}`, "not JSON": `{`,
		"blank text": user(`{"text":" \n"}`), "no content": user(``), "two members": user(`{"text":"a","image":{}}`), "unknown block": user(`{"sound":{}}`),
		"unknown role": `{"messages":[{"role":"system","content":[{"text":"hi"}]}]}`, "the assistant first": `{"messages":[{"role":"assistant","content":[{"text":"hi"}]}]}`,
		"the assistant last": begin + `{"role":"assistant","content":[{"text":"x"}]}]}`, "one role twice": begin + `{"role":"user","content":[{"text":"x"}]}]}`,
		"blank system": `{` + hi + `,"system":[{"text":""}]}`, "too warm": `{` + hi + `,"inferenceConfig":{"temperature":1.1}}`,
		"digits of a float": `{` + hi + `,"inferenceConfig":{"temperature":0.699999988079071}}`, "two samplers": `{` + hi + `,"inferenceConfig":{"temperature":1,"topP":1}}`,
		"blank stop": `{` + hi + `,"inferenceConfig":{"stopSequences":[" "]}}`, "no tokens": `{` + hi + `,"inferenceConfig":{"maxTokens":0}}`,
		"a tier": `{` + hi + `,"serviceTier":{"type":"auto"}}`, "an effort": `{` + hi + `,"outputConfig":{"effort":"none"}}`,
		"no result": begin + use + `,{"role":"user","content":[{"text":"so?"}]}],` + tools + `}`, "a last call": begin + use + `],` + tools + `}`,
		"an orphan": `{"messages":[{"role":"user","content":[` + result + `]}],` + tools + `}`, "text before results": begin + use + `,{"role":"user","content":[{"text":"x"},` + result + `]}],` + tools + `}`,
		"results without tools": begin + use + `,{"role":"user","content":[` + result + `]}]}`, "a result twice": begin + use + `,{"role":"user","content":[` + result + `,` + result + `]}],` + tools + `}`,
		"an id":    strings.ReplaceAll(begin+use+`,{"role":"user","content":[`+result+`]}],`+tools+`}`, `"toolUseId":"a"`, `"toolUseId":"a:b"`),
		"no tools": `{` + hi + `,"toolConfig":{"tools":[]}}`, "a tool's name": `{` + hi + `,"toolConfig":{"tools":[{"toolSpec":{"name":"a.b","inputSchema":{"json":{"type":"object"}}}}]}}`,
		"a tool without a type": `{` + hi + `,"toolConfig":{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{}}}}]}}`,
		"an unknown choice":     `{` + hi + `,` + strings.TrimSuffix(tools, "}") + `,"toolChoice":{"tool":{"name":"g"}}}}`,
		"an image's type":       user(`{"image":{"format":"jpg","source":{"bytes":"AA=="}}}`), "an image's URL": user(`{"image":{"format":"png","source":{"url":"https://x"}}}`),
		"a lone document": user(`{"document":{"name":"d","format":"pdf","source":{"bytes":"AA=="}}}`), "a document's name": user(`{"text":"x"},{"document":{"name":"d.pdf","format":"pdf","source":{"bytes":"AA=="}}}`),
		"a double space": user(`{"text":"x"},{"document":{"name":"d  e","format":"pdf","source":{"bytes":"AA=="}}}`), "sound": user(`{"audio":{"format":"wav","source":{"bytes":"AA=="}}}`),
		"a first cache point": user(`{"cachePoint":{"type":"default"}},{"text":"x"}`), "a cache point's time": user(`{"text":"x"},{"cachePoint":{"type":"default","ttl":"2h"}}`),
		"five cache points": user(strings.Repeat(`{"text":"x"},{"cachePoint":{"type":"default"}},`, 5) + `{"text":"x"}`),
		"unsigned thinking": begin + `{"role":"assistant","content":[{"reasoningContent":{"reasoningText":{"text":"x"}}},{"text":"y"}]},{"role":"user","content":[{"text":"z"}]}]}`,
		"an open schema":    `{` + hi + `,"outputConfig":{"textFormat":{"type":"json_schema","structure":{"jsonSchema":{"schema":"{\"type\":\"object\",\"properties\":{}}"}}}}}`,
		"a keyword":         `{` + hi + `,"outputConfig":{"textFormat":{"type":"json_schema","structure":{"jsonSchema":{"schema":"{\"type\":\"integer\",\"minimum\":1}"}}}}}`,
		"a schema object":   `{` + hi + `,"outputConfig":{"textFormat":{"type":"json_schema","structure":{"jsonSchema":{"schema":{}}}}}}`,
		"other parameters":  `{` + hi + `,"additionalModelRequestFields":{"topK":1}}`,
	} {
		if check(bedrockCall(claude, bad)) == "" {
			t.Errorf("%s passes: %s", name, bad)
		}
	}
	for name, bad := range map[string]string{
		"sampling": `{` + hi + `,"inferenceConfig":{"temperature":0.5}}`, "top_k": `{` + hi + `,"additionalModelRequestFields":{"top_k":1}}`,
		"a forced call": `{` + hi + `,` + strings.TrimSuffix(tools, "}") + `,"toolChoice":{"any":{}}}}`,
	} {
		if check(bedrockCall(newest, bad)) == "" {
			t.Errorf("the newest model, %s passes: %s", name, bad)
		}
	}
	for name, spoil := range map[string]func(*Call){
		"no signature": func(c *Call) { c.Header.Del("Authorization") }, "another path": func(c *Call) { c.Path = "/model/x/invoke" },
		"another region": func(c *Call) {
			c.Header.Set("Authorization", strings.Replace(c.Header.Get("Authorization"), "us-east-1", "us-west-2", 1))
		},
		"a query": func(c *Call) { c.Query = "x=1" }, "a header that is not signed": func(c *Call) { c.Header.Del("X-Amz-Date") },
	} {
		c := bedrockCall(claude, `{`+hi+`}`)
		if spoil(c); check(c) == "" {
			t.Errorf("%s passes", name)
		}
	}
}
