package openaiapi

import (
	"encoding/json"
	"strconv"
)

// ChatRequest is the body of POST /v1/chat/completions.
type ChatRequest struct {
	Model               string
	Messages            []Message
	MaxTokens           *int64
	MaxCompletionTokens *int64
	Temperature         *float64
	TopP                *float64
	TopK                *int64 // not OpenAI's; vLLM and llama.cpp have it
	PresencePenalty     *float64
	FrequencyPenalty    *float64
	Stop                *Stop
	Seed                *int64
	LogitBias           []TokenBias
	Logprobs            *bool
	TopLogprobs         *int64
	N                   *int64
	ParallelToolCalls   *bool
	Verbosity           string
	ServiceTier         string
	ReasoningEffort     string
	PromptCacheKey      string
	Stream              *bool
	StreamOptions       *StreamOptions
	ResponseFormat      *ResponseFormat
	Tools               []Tool
	ToolChoice          *ToolChoice
	Extra               Members
}

// Stop is one string or several at which the answer ends.
type Stop struct {
	Strings []string
	// Bare: a string instead of an array with one.
	Bare bool
}

// TokenBias makes a token likelier or not.
type TokenBias struct {
	Token string
	Bias  float64
}

// StreamOptions are what a caller may choose about a stream.
type StreamOptions struct {
	IncludeUsage *bool
	Extra        Members
}

// ResponseFormat is the shape that the answer has to have.
type ResponseFormat struct {
	Type       string // text, json_object or json_schema
	JSONSchema *JSONSchema
	Extra      Members
}

// JSONSchema is a named schema of an answer.
type JSONSchema struct {
	Name        string
	Description string
	Schema      json.RawMessage
	Strict      *bool
	Extra       Members
}

// Tool is a tool that the model may call.
type Tool struct {
	Type     string
	Function *Function // of type function
	Extra    Members
	// Raw is the whole tool where its type is not function.
	Raw json.RawMessage
}

// Function describes a function.
type Function struct {
	Name        string
	Description string
	Parameters  json.RawMessage
	Strict      *bool
	Extra       Members
}

// ToolChoice says which tools the model may or must call: exactly one of its fields is set.
type ToolChoice struct {
	// Mode is none, auto, required or a word that only the vendor knows.
	Mode string
	// Function is the name of the one function to call.
	Function string
	// Raw is any other choice.
	Raw json.RawMessage
}

// DecodeChatRequest reads a request. Its errors are *SyntaxError and *TypeError.
func DecodeChatRequest(data []byte) (*ChatRequest, error) {
	r := &ChatRequest{}
	d := newDecoder(data, false)
	if d.root() {
		d.chatRequest(r)
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return r, nil
}

// UnmarshalJSON is DecodeChatRequest for encoding/json.
func (r *ChatRequest) UnmarshalJSON(data []byte) error {
	decoded, err := DecodeChatRequest(append([]byte(nil), data...))
	if err == nil {
		*r = *decoded
	}
	return err
}

func (d *decoder) chatRequest(r *ChatRequest) {
	for d.member() {
		switch string(d.name()) {
		case "model":
			d.mustStr(&r.Model, &r.Extra)
		case "messages":
			r.Messages = nil
			if d.list("an array of messages", &r.Extra) {
				r.Messages = []Message{}
				for d.element() {
					if d.elementObject() {
						r.Messages = append(r.Messages, Message{})
						d.message(&r.Messages[len(r.Messages)-1])
					}
				}
			}
		case "max_tokens":
			d.mustInteger(&r.MaxTokens, &r.Extra)
		case "max_completion_tokens":
			d.mustInteger(&r.MaxCompletionTokens, &r.Extra)
		case "temperature":
			d.float(&r.Temperature, &r.Extra)
		case "top_p":
			d.float(&r.TopP, &r.Extra)
		case "top_k":
			d.integer(&r.TopK, &r.Extra)
		case "presence_penalty":
			d.float(&r.PresencePenalty, &r.Extra)
		case "frequency_penalty":
			d.float(&r.FrequencyPenalty, &r.Extra)
		case "stop":
			d.stop(r)
		case "seed":
			d.integer(&r.Seed, &r.Extra)
		case "logit_bias":
			d.logitBias(r)
		case "logprobs":
			d.boolean(&r.Logprobs, &r.Extra)
		case "top_logprobs":
			d.integer(&r.TopLogprobs, &r.Extra)
		case "n":
			d.mustInteger(&r.N, &r.Extra)
		case "parallel_tool_calls":
			d.boolean(&r.ParallelToolCalls, &r.Extra)
		case "verbosity":
			d.str(&r.Verbosity, &r.Extra)
		case "service_tier":
			d.str(&r.ServiceTier, &r.Extra)
		case "reasoning_effort":
			d.str(&r.ReasoningEffort, &r.Extra)
		case "prompt_cache_key":
			d.str(&r.PromptCacheKey, &r.Extra)
		case "stream":
			d.mustBool(&r.Stream, &r.Extra)
		case "stream_options":
			if d.object("an object", &r.Extra) {
				r.StreamOptions = &StreamOptions{}
				for d.member() {
					if string(d.name()) == "include_usage" {
						d.mustBool(&r.StreamOptions.IncludeUsage, &r.StreamOptions.Extra)
					} else {
						d.keep(&r.StreamOptions.Extra)
					}
				}
			}
		case "response_format":
			d.responseFormat(r)
		case "tools":
			d.tools(r)
		case "tool_choice":
			d.toolChoice(r)
		default:
			d.keep(&r.Extra)
		}
	}
}

// stop reads a string or an array of strings; what is neither, or empty, stays in extra.
func (d *decoder) stop(r *ChatRequest) {
	if d.kind() == '"' {
		r.Stop = &Stop{Strings: []string{unquote(d.quoted())}, Bare: true}
		return
	}
	if d.null() {
		return
	}
	start := d.pos
	if d.kind() != '[' {
		d.keep(&r.Extra)
		return
	}
	var all []string
	plain := true
	d.enter()
	for d.element() {
		if d.kind() == '"' {
			all = append(all, unquote(d.quoted()))
		} else {
			plain = false
			d.skip()
		}
	}
	if !plain || len(all) == 0 {
		d.keepFrom(start, &r.Extra)
		return
	}
	r.Stop = &Stop{Strings: all}
}

func (d *decoder) logitBias(r *ChatRequest) {
	start := d.pos
	if !d.object("", &r.Extra) {
		return
	}
	var all []TokenBias
	plain := true
	for d.member() {
		token := string(d.name())
		if !isNumber(d.kind()) {
			plain = false
			d.skip()
			continue
		}
		bias, err := strconv.ParseFloat(string(d.number()), 64)
		plain = plain && err == nil
		all = append(all, TokenBias{token, bias})
	}
	if !plain || len(all) == 0 {
		d.keepFrom(start, &r.Extra)
		return
	}
	r.LogitBias = all
}

func (d *decoder) responseFormat(r *ChatRequest) {
	if !d.object("", &r.Extra) {
		return
	}
	f := &ResponseFormat{}
	r.ResponseFormat = f
	for d.member() {
		switch string(d.name()) {
		case "type":
			d.str(&f.Type, &f.Extra)
		case "json_schema":
			if !d.object("", &f.Extra) {
				continue
			}
			s := &JSONSchema{}
			f.JSONSchema = s
			for d.member() {
				switch string(d.name()) {
				case "name":
					d.str(&s.Name, &s.Extra)
				case "description":
					d.str(&s.Description, &s.Extra)
				case "schema":
					d.value(&s.Schema)
				case "strict":
					d.boolean(&s.Strict, &s.Extra)
				default:
					d.keep(&s.Extra)
				}
			}
		default:
			d.keep(&f.Extra)
		}
	}
}

func (d *decoder) tools(r *ChatRequest) {
	r.Tools = nil
	start := d.pos
	if !d.list("an array of tools", &r.Extra) {
		return
	}
	for d.element() {
		begin := d.pos
		if !d.elementObject() {
			continue
		}
		r.Tools = append(r.Tools, Tool{})
		t := &r.Tools[len(r.Tools)-1]
		for d.member() {
			switch string(d.name()) {
			case "type":
				d.mustStr(&t.Type, &t.Extra)
			case "function":
				if d.object("an object", &t.Extra) {
					t.Function = &Function{}
					d.function(t.Function)
				}
			default:
				d.keep(&t.Extra)
			}
		}
		if d.err == nil && (t.Type != "function" || t.Function == nil) {
			*t = Tool{Type: t.Type, Raw: d.data[begin:d.pos:d.pos]}
		}
	}
	if r.Tools == nil {
		d.keepFrom(start, &r.Extra)
	}
}

func (d *decoder) function(f *Function) {
	for d.member() {
		switch string(d.name()) {
		case "name":
			d.mustStr(&f.Name, &f.Extra)
		case "description":
			d.str(&f.Description, &f.Extra)
		case "parameters":
			d.value(&f.Parameters)
		case "strict":
			d.boolean(&f.Strict, &f.Extra)
		default:
			d.keep(&f.Extra)
		}
	}
}

// toolChoice takes {"type":"function","function":{"name":…}} apart only if it says nothing else.
func (d *decoder) toolChoice(r *ChatRequest) {
	if d.kind() == '"' {
		d.toolChoiceMode(r)
		return
	}
	if d.null() {
		return
	}
	raw := d.raw()
	if d.err != nil {
		return
	}
	r.ToolChoice = &ToolChoice{Raw: raw}
	outer, err := ParseMembers(raw)
	if err != nil || len(outer) != 2 || string(outer.Get("type")) != `"function"` {
		return
	}
	inner, err := ParseMembers(outer.Get("function"))
	if err != nil || len(inner) != 1 {
		return
	}
	if q := inner.Get("name"); len(q) > 2 && q[0] == '"' {
		r.ToolChoice = &ToolChoice{Function: unquote(q[1 : len(q)-1])}
	}
}

func (d *decoder) toolChoiceMode(r *ChatRequest) {
	start := d.pos
	if mode := unquote(d.quoted()); mode != "" {
		r.ToolChoice = &ToolChoice{Mode: mode}
	} else {
		d.keepFrom(start, &r.Extra)
	}
}
