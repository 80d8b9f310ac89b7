package bedrock

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ai-process/ktms/vendors"
)

// TestOrder: the vendor refuses a turn whose thinking stands elsewhere than it did, so that it goes back in its place, from
// both kinds of answer.
func TestOrder(t *testing.T) {
	const s1, s2 = `{"reasoningContent":{"reasoningText":{"text":"a","signature":"S1"}}}`, `{"reasoningContent":{"redactedContent":"AAH/"}}`
	r, err := answered(`{"output":{"message":{"content":[` + s1 + `,{"text":"T1 ☃"},` + s2 + `,{"toolUse":{"toolUseId":"c","name":"f","input":{}}},` +
		s1 + `,{"text":"T2"},{"toolUse":{"toolUseId":"d","name":"f","input":{}}}]}},"stopReason":"tool_use"}`)
	if err != nil {
		t.Fatal(err)
	}
	delta := func(index, delta string) event {
		return event{"contentBlockDelta", `{"contentBlockIndex":` + index + `,"delta":` + delta + `}`}
	}
	chunks, err := streamed(t, delta("0", `{"reasoningContent":{"text":"a"}}`), delta("0", `{"reasoningContent":{"signature":"S1"}}`),
		delta("1", `{"text":"T1 "}`), delta("1", `{"text":"☃"}`), delta("2", `{"reasoningContent":{"redactedContent":"AAH/"}}`),
		callEvent(3, `"toolUseId":"c",`, "f"), delta("4", `{"reasoningContent":{"text":"a"}}`), delta("4", `{"reasoningContent":{"signature":"S1"}}`),
		delta("5", `{"text":"T2"}`), callEvent(6, `"toolUseId":"d",`, "f"), event{"messageStop", `{"stopReason":"tool_use"}`})
	whole := r.GetChoices()[0]
	if pieces, _ := joined(chunks); err != nil || !proto.Equal(whole, pieces) {
		t.Fatalf("%v\n%v %v", whole, pieces, err)
	}
	turn := func(text, opaque string) string {
		return hello + `messages { role: MESSAGE_ROLE_ASSISTANT text: ` + quoted(text) + ` opaque: "` + opaque + `" tool_calls { id: "c" name: "f" } tool_calls { id: "d" name: "f" } } ` +
			answering("c", "r") + answering("d", "r")
	}
	body, _, err := sent(t, target(testClaude), turn(whole.GetText(), whole.GetOpaque()))
	const w1 = `{"reasoningContent":{"reasoningText":{"signature":"S1","text":"a"}}}`
	const c, d = `{"toolUse":{"input":{},"name":"f","toolUseId":"c"}}`, `{"toolUse":{"input":{},"name":"f","toolUseId":"d"}}`
	if want := `[` + w1 + `,{"text":"T1 ☃"},` + s2 + `,` + c + `,` + w1 + `,{"text":"T2"},` + d + `]`; err != nil || !strings.Contains(body, want) {
		t.Errorf("%v: no %s in\n%s", err, want, body)
	}
	// A state that somebody made up does no harm.
	for _, state := range []string{
		`[1,9223372036854775807,{"type":"thinking","thinking":"x","signature":"y"}]`, `[{"type":"redacted_thinking","data":"*"}]`, `[5,{"type":"thinking","thinking":"x","signature":"y"}]`,
		`[{"type":"thinking","thinking":"x","signature":"y","cache_control":{"type":"ephemeral"}},"no such call",-1]`, `[null]`, `["c","c","c",{"type":"redacted_thinking","data":"AAH/"}]`,
	} {
		body, _, err := sent(t, target(testClaude), turn("hé", vendors.SealOpaque(dialect, testClaude, []byte(state))))
		if err != nil || !strings.Contains(body, "hé") || strings.Count(body, `"toolUse"`) != 2 || strings.Contains(body, "cachePoint") {
			t.Errorf("%s: %v\n%s", state, err, body)
		}
	}
}

// TestThoughtsAlone: reasoning without an answer is no turn, and none ends with it.
func TestThoughtsAlone(t *testing.T) {
	opaque := vendors.SealOpaque(dialect, testClaude, []byte(`[{"type":"thinking","thinking":"x","signature":"y"}]`))
	body, _, err := sent(t, target(testClaude), hello+`messages { role: MESSAGE_ROLE_ASSISTANT opaque: "`+opaque+`" } `+hello)
	if err != nil || strings.Contains(body, "reasoningContent") || strings.Contains(body, "assistant") {
		t.Errorf("%v %s", err, body)
	}
	opaque = vendors.SealOpaque(dialect, testClaude, []byte(`[{"type":"thinking","thinking":"x","signature":"S1"},2,{"type":"thinking","thinking":"x","signature":"S2"}]`))
	body, _, err = sent(t, target(testClaude), hello+`messages { role: MESSAGE_ROLE_ASSISTANT text: "ab" opaque: "`+opaque+`" } `+hello)
	if err != nil || !strings.Contains(body, `"signature":"S1","text":"x"}}},{"text":"ab"}]`) || strings.Contains(body, "S2") {
		t.Errorf("%v %s", err, body)
	}
}

// TestBreakpoints: no more than the vendor takes, those of an hour first, and the last of a conversation rather than the
// first.
func TestBreakpoints(t *testing.T) {
	said := func(text, ttl string) string {
		return `messages { role: MESSAGE_ROLE_USER text: "` + text + `" extra_json: '{"cache_control":{"type":"ephemeral","ttl":"` + ttl + `"}}' } `
	}
	tool := ` tools { name: "g" extra_json: '{"cache_control":{"type":"ephemeral"}}' }`
	body, head, err := sent(t, target(testClaude), said("a", "5m")+said("b", "5m")+said("c", "5m")+said("d", "5m")+said("e", "5m")+tool)
	point := `{"cachePoint":{"ttl":"5m","type":"default"}}`
	if want := `{"text":"a"},{"text":"b"},{"text":"c"},` + point + `,{"text":"d"},` + point + `,{"text":"e"},` + point + `]`; err != nil ||
		len(head.Dropped) != 1 || !strings.Contains(body, want) || strings.Count(body, "cachePoint") != 4 {
		t.Errorf("%v %v %s", head, err, body)
	}
	body, head, err = sent(t, target(testClaude), said("a", "5m")+said("b", "1h"))
	if err != nil || len(head.Dropped) != 1 || strings.Count(body, "cachePoint") != 1 || strings.Contains(body, "1h") {
		t.Errorf("%v %v %s", head, err, body)
	}
	// What has nowhere to stand is not lost without a word.
	for _, lost := range []string{said("", "5m"), hello + strings.Replace(asking("c"), `name: "f"`, `name: "f" extra_json: '{"cache_control":{"type":"ephemeral"}}'`, 1) + answering("c", "r")} {
		if body, head, err := sent(t, target(testClaude), lost); err != nil || len(head.Dropped) != 1 || strings.Contains(body, "cachePoint") {
			t.Errorf("%v %v %s", head, err, body)
		}
	}
}

// TestStrangers: nobody knows that other models follow a schema, and what they take is left to them.
func TestStrangers(t *testing.T) {
	for _, id := range []string{"us.meta.llama4-maverick-17b-instruct-v1:0", "amazon.nova-pro-v1:0", "arn:aws:bedrock:x:1:application-inference-profile/abc"} {
		body, head, err := sent(t, target(id), hello+`response_schema_json: '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}'
			temperature: 0.5 top_p: 0.5 tools { name: "g" strict: true } tool_choice { mode: TOOL_CHOICE_MODE_REQUIRED } extra_json: '{"thinking":null}'`)
		if err != nil || head.Enforced || len(head.Dropped) != 1 || strings.Contains(body, "textFormat") || !strings.Contains(body, followSchema) ||
			!strings.Contains(body, `"temperature":0.5,"topP":0.5`) || !strings.Contains(body, `"any":{}`) {
			t.Errorf("%s: %+v %v %s", id, head, err, body)
		}
	}
}
