package vendortest

import (
	"encoding/json"
	"strings"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

var fieldCases = []testCase{
	{name: "every field", run: checkFields},
	{name: "beta headers", run: func(f *fixture) {
		req := request()
		req.BetaHeaders = map[string]string{"anthropic-beta": "canary-a", "openai-beta": "canary-o"}
		_, dropped, err := f.sent(req)
		if err != nil {
			f.Fatal(err)
		}
		went := 0
		for name, values := range f.up.Await(0).Header {
			if strings.HasPrefix(values[0], "canary-") && !strings.Contains(values[0], Key) {
				went++
				if want := map[string]string{"Anthropic-Beta": "canary-a", "Openai-Beta": "canary-o"}[name]; want != values[0] {
					f.Errorf("%s: %q", name, values[0])
				}
			}
		}
		carries := f.vendor.Fields(f.target.Vendor, f.target.Model).Carries(vendors.BetaHeaders)
		if carries != (went == 1) || went > 1 || len(dropped) != 1 || dropped[0] != vendors.BetaHeaders.Param() {
			f.Errorf("%d headers went out, dropped %v", went, dropped)
		}
	}},
	{name: "zero is a value", run: func(f *fixture) {
		table := f.vendor.Fields(f.target.Vendor, f.target.Model)
		plain, _, err := f.sent(request())
		if err != nil {
			f.Fatal(err)
		}
		for field, set := range map[vendors.Field]edit{
			vendors.Temperature: func(r *ktmsv1.GenerateTextRequest) { r.Temperature = new(0.0) },
			vendors.TopP:        func(r *ktmsv1.GenerateTextRequest) { r.TopP = new(0.0) },
			vendors.Seed:        func(r *ktmsv1.GenerateTextRequest) { r.Seed = new(int64(0)) },
		} {
			if !table.Carries(field) {
				continue
			}
			req := request()
			set(req)
			if with, dropped, err := f.sent(req); err != nil || string(with) == string(plain) || len(dropped) > 0 {
				f.Errorf("%s: %v, dropped %v: %s", field, err, dropped, with)
			}
		}
	}},
	{name: "what happens anyway is not dropped", run: func(f *fixture) {
		req := request()
		req.N, req.Logprobs, req.ParallelToolCalls = new(int32(1)), new(false), new(true)
		req.PresencePenalty, req.FrequencyPenalty = new(0.0), new(0.0)
		req.ToolChoice = &ktmsv1.ToolChoice{Mode: ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO}
		withTool()(req)
		req.StrictParams = true
		if _, dropped, err := f.sent(req); err != nil || len(dropped) > 0 {
			f.Errorf("%v, dropped %v", err, dropped)
		}
	}},
}

func say(role ktmsv1.MessageRole, text string) *ktmsv1.Message {
	return &ktmsv1.Message{Role: role, Text: text}
}

const (
	user      = ktmsv1.MessageRole_MESSAGE_ROLE_USER
	assistant = ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT
	system    = ktmsv1.MessageRole_MESSAGE_ROLE_SYSTEM
	developer = ktmsv1.MessageRole_MESSAGE_ROLE_DEVELOPER
	tool      = ktmsv1.MessageRole_MESSAGE_ROLE_TOOL
)

func asks(calls ...*ktmsv1.ToolCall) *ktmsv1.Message {
	return &ktmsv1.Message{Role: assistant, ToolCalls: calls}
}

func call(id, arguments string) *ktmsv1.ToolCall {
	return &ktmsv1.ToolCall{Id: id, Name: "get_weather", Arguments: arguments, Type: "function"}
}

func answers(id, text string) *ktmsv1.Message {
	return &ktmsv1.Message{Role: tool, ToolCallId: id, Text: text}
}

// conversation is a history that the vendor has to take, and what has to arrive of it, in any order.
type conversation struct {
	name     string
	messages []*ktmsv1.Message
	arrives  []string
	// mayRefuse: the vendor's rules leave no way to send it; saying so is right too.
	mayRefuse bool
}

// foreignID is longer than most vendors take, and holds what few of them take.
var foreignID = "toolu:01/ä=" + strings.Repeat("x", 120)

var conversations = []conversation{
	{name: "empty and blank contents", arrives: []string{"real-one", "real-two", "callnum01"}, messages: []*ktmsv1.Message{
		say(user, ""), say(assistant, ""), say(user, " \n\t"), {Role: user, Parts: []*ktmsv1.ContentPart{textPart(""), textPart("real-one"), textPart(" ")}},
		{Role: assistant, Text: " ", ToolCalls: []*ktmsv1.ToolCall{call("callnum01", "{}")}}, answers("callnum01", ""), say(assistant, ""), say(user, "real-two"),
	}},
	{name: "instructions anywhere", arrives: []string{"sys-one", "sys-two", "sys-three", "usr-one", "usr-two", "sys-parts"}, messages: []*ktmsv1.Message{
		say(system, "sys-one"), {Role: system, Parts: []*ktmsv1.ContentPart{textPart("sys-parts")}}, say(user, "usr-one"), say(system, "sys-two"), say(developer, "sys-three"), say(user, "usr-two"),
	}},
	{name: "nothing but an instruction", arrives: []string{"sys-one"}, messages: []*ktmsv1.Message{say(system, "sys-one")}},
	{name: "an instruction at the end", arrives: []string{"sys-one"}, messages: []*ktmsv1.Message{say(user, "hi"), say(assistant, "ho"), say(system, "sys-one")}},
	{name: "turns of one role in a row", arrives: []string{"usr-one", "usr-two", "asst-one", "asst-two"}, messages: []*ktmsv1.Message{
		say(user, "usr-one"), say(user, "usr-two"), say(assistant, "asst-one"), say(assistant, "asst-two"), say(user, "end"),
	}},
	{name: "the assistant begins", arrives: []string{"asst-one", "usr-one"}, messages: []*ktmsv1.Message{say(assistant, "asst-one"), say(user, "usr-one")}},
	{name: "the assistant has the last word", arrives: []string{"usr-one", "asst-one"}, mayRefuse: true, messages: []*ktmsv1.Message{say(user, "usr-one"), say(assistant, "asst-one")}},
	{name: "results in reverse, and text after", arrives: []string{"result-one", "result-two", "and-then"}, messages: []*ktmsv1.Message{
		say(user, "go"), asks(call("callnum01", `{"city":"Paris"}`), call("callnum02", `{"city":"Rome"}`)),
		answers("callnum02", "result-two"), answers("callnum01", "result-one"), say(user, "and-then"),
	}},
	{name: "two rounds of calls", arrives: []string{"result-one", "result-two", "result-three", "words"}, messages: []*ktmsv1.Message{
		say(user, "go"), asks(call("callnum01", `{}`)), answers("callnum01", "result-one"),
		{Role: assistant, Text: "words", ToolCalls: []*ktmsv1.ToolCall{call("callnum02", `{}`), call("callnum03", `{}`)}},
		answers("callnum02", "result-two"), answers("callnum03", "result-three"),
	}},
	{name: "a call without arguments", arrives: []string{"done"}, messages: []*ktmsv1.Message{
		say(user, "go"), asks(call("callnum01", "")), answers("callnum01", "done"),
	}},
	{name: "results that are JSON, empty, or many parts", arrives: []string{"canary-json", "canary-part"}, messages: []*ktmsv1.Message{
		say(user, "go"), asks(call("callnum01", "{}"), call("callnum02", "{}"), call("callnum03", "{}")), answers("callnum01", `{"canary-json":[1,2]}`), answers("callnum02", ""),
		{Role: tool, ToolCallId: "callnum03", Parts: []*ktmsv1.ContentPart{textPart("canary-part"), textPart(" ")}},
	}},
	{name: "foreign ids", arrives: []string{"result-one", "result-two"}, messages: []*ktmsv1.Message{
		say(user, "go"), asks(call(foreignID+"a", "{}"), call(foreignID+"b", "{}")), answers(foreignID+"a", "result-one"), answers(foreignID+"b", "result-two"),
	}},
	{name: "numbers and order of arguments", arrives: []string{"9007199254740993"}, messages: []*ktmsv1.Message{
		say(user, "go"), asks(call("callnum01", `{"zeta":9007199254740993,"alpha":{"b":1,"a":2}}`)), answers("callnum01", "ok"),
	}},
	{name: "a refusal in the history", arrives: []string{"no-way"}, messages: []*ktmsv1.Message{say(user, "x"), {Role: assistant, Refusal: "no-way"}, say(user, "y")}},
}

// nasty is a schema with what trips translators: references in a circle, properties called like keywords, keywords that
// few vendors take, and an order that matters.
const nasty = `{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"Nasty","type":"object","properties":{` +
	`"zeta":{"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991,"description":"a number"},` +
	`"alpha":{"type":["string","null"],"format":"date-time","pattern":"^2"},` +
	`"additionalProperties":{"type":"string"},"$ref":{"type":"string","minLength":1},"minimum":{"const":"m"},` +
	`"tree":{"$ref":"#/$defs/Tree"},"either":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"number"},"minItems":2,"uniqueItems":true}]}},` +
	`"required":["zeta","alpha","additionalProperties","$ref","minimum","tree","either"],"additionalProperties":false,` +
	`"$defs":{"Tree":{"type":"object","properties":{"leaf":{"type":"string"},"children":{"type":"array","items":{"$ref":"#/$defs/Tree"}}},"required":["leaf"]}}}`

var contentCases = []testCase{
	{name: "conversations", needs: checked, run: func(f *fixture) {
		for _, c := range conversations {
			f.Run(c.name, func(t *testing.T) { newFixture(t, f.Subject).converse(c) })
		}
	}},
	{name: "results without a call, and calls without a result", needs: checked, run: func(f *fixture) {
		for name, messages := range map[string][]*ktmsv1.Message{
			"orphan":  {say(user, "go"), answers("callnum07", "r")},
			"missing": {say(user, "go"), asks(call("callnum07", "{}"), call("callnum08", "{}")), answers("callnum08", "r"), say(user, "well?")},
		} {
			req := request()
			req.Messages = messages
			withTool()(req)
			f.up.Reply(f.answers(f.Script.Body(hello())))
			before := len(f.up.Calls())
			_, err := f.generate(f.Context(), req)
			if calls := f.up.Calls(); len(calls) > before {
				// Vendors that check it themselves say it better; those that do not may have it as it is.
				if wrong := f.Script.Check(calls[before]); wrong != "" && !strings.Contains(wrong, "callnum07") {
					f.Errorf("%s: sent although %s", name, wrong)
				}
			} else if e := f.wants(err, vendors.Invalid); !strings.Contains(e.Message, "callnum07") {
				f.Errorf("%s: %v", name, e)
			}
		}
	}},
	{name: "schemas", needs: checked, run: func(f *fixture) {
		for name, change := range map[string]edit{
			"response":    func(r *ktmsv1.GenerateTextRequest) { r.ResponseSchemaJson = nasty },
			"tool":        withTool(func(t *ktmsv1.Tool) { t.ParametersJson = nasty }),
			"strict tool": withTool(func(t *ktmsv1.Tool) { t.ParametersJson, t.Strict = nasty, new(true) }),
		} {
			req := request()
			change(req)
			body, _, err := f.sent(req)
			if err != nil {
				f.Errorf("%s: %v", name, err)
				continue
			}
			text := plain(body)
			at := -1
			for _, property := range []string{`"zeta":{`, `"alpha":{`, `"additionalProperties":{`, `"$ref":{`, `"minimum":{`, `"tree":{`, `"either":{`} {
				next := strings.Index(text, property)
				if next < 0 || next < at {
					f.Errorf("%s: %s is lost or out of order in\n%s", name, property, text)
				}
				at = next
			}
		}
	}},
	{name: "signed reasoning comes back byte by byte", needs: func(s *Script) bool { return s.Signed && checked(s) }, run: func(f *fixture) {
		a := calling(2)
		a.Signature = "canary/SIG+nature=="
		if f.Script.Reasoning {
			a.Reasoning = []string{"Let me", " think."}
		}
		f.up.Reply(f.answers(f.Script.Body(a)), f.streams(f.Script.Stream(a).All()...))
		answer, err := f.generate(f.Context(), request())
		r := f.stream(f.Context(), request())
		if err != nil || r.err != nil {
			f.Fatal(err, r.err)
		}
		streamed := ""
		for _, c := range r.chunks {
			streamed += c.GetOpaque()
		}
		for kind, opaque := range map[string]string{"unary": answer.Response.GetChoices()[0].GetOpaque(), "stream": streamed} {
			if opaque == "" {
				f.Errorf("%s: no opaque state", kind)
			}
			req := request()
			withTool(func(t *ktmsv1.Tool) { t.Name = "get_weather_1" })(req)
			withTool(func(t *ktmsv1.Tool) { t.Name = "get_weather_2" })(req)
			turn := &ktmsv1.Message{Role: assistant, Opaque: opaque, Reasoning: strings.Join(a.Reasoning, "")}
			turn.ToolCalls = append(turn.ToolCalls, answer.Response.GetChoices()[0].GetToolCalls()...)
			req.Messages = append(req.Messages, turn, answers(turn.ToolCalls[0].GetId(), "r1"), answers(turn.ToolCalls[1].GetId(), "r2"))
			if body, _, err := f.sent(req); err != nil || !strings.Contains(string(body), a.Signature) {
				f.Errorf("%s: %v, the signature is not in\n%s", kind, err, body)
			}
			for name, other := range map[string]string{"damaged": opaque[:len(opaque)-3] + "!", "another's": "somebody." + opaque, "free text": "no-state-at-all"} {
				turn.Opaque = other
				if body, _, err := f.sent(req); err != nil || strings.Contains(string(body), other) {
					f.Errorf("%s, %s: %v\n%s", kind, name, err, body)
				}
			}
		}
	}},
}

func checked(s *Script) bool { return s.Check != nil }

// plain undoes what a schema in a string is escaped with.
func plain(body []byte) string {
	return strings.ReplaceAll(string(body), `\"`, `"`)
}

func (f *fixture) converse(c conversation) {
	req := request()
	req.Messages = c.messages
	withTool()(req)
	body, dropped, err := f.sent(req)
	if err != nil {
		if e, ok := err.(*vendors.Error); !c.mayRefuse || !ok || e.Kind != vendors.Unsupported && e.Kind != vendors.Invalid {
			f.Error(err)
		}
		return
	}
	for _, text := range c.arrives {
		if !strings.Contains(string(body), text) {
			f.Errorf("%s is lost, dropped %v:\n%s", text, dropped, body)
		}
	}
	if !json.Valid(body) {
		f.Errorf("not JSON: %s", body)
	}
}
