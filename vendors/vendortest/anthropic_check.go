package vendortest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// anthropicModel is what the check knows of a model; it takes others for the newest.
type anthropicModel struct {
	// sampling other than the defaults; pick: temperature or top_p, not both.
	sampling, pick bool
	// thinking are the types that are taken.
	thinking                       []string
	effort, force, prefill, format bool
	// on: it thinks unless it is told not to.
	on bool
}

var (
	anthropicNewest = anthropicModel{thinking: []string{"adaptive"}, effort: true, format: true}
	anthropicModels = map[string]anthropicModel{
		"claude-opus-5-5":   anthropicNewest,
		"claude-haiku-5-5":  {thinking: []string{"adaptive", "disabled"}, effort: true, format: true},
		"claude-opus-5":     {thinking: []string{"adaptive", "disabled"}, effort: true, force: true, format: true, on: true},
		"claude-opus-4-8":   {thinking: []string{"adaptive", "disabled"}, effort: true, force: true, format: true},
		"claude-sonnet-4-6": {thinking: []string{"adaptive", "disabled", "enabled"}, sampling: true, pick: true, effort: true, force: true, format: true},
		"claude-haiku-4-5-20251001": {
			thinking: []string{"disabled", "enabled"}, sampling: true, pick: true, force: true, prefill: true, format: true},
		"claude-opus-4-20250514":  {thinking: []string{"disabled", "enabled"}, sampling: true, force: true, prefill: true},
		"claude-3-5-haiku-latest": {sampling: true, force: true, prefill: true},
	}
)

// anthropicCheck reads one request as the Messages API validates it. It keeps the first complaint.
type anthropicCheck struct {
	model anthropicModel
	wrong string
	// breakpoints are the lifetimes in the order of the prompt, and marks those that were found in one part of it.
	marks []string
	tools []string
	uses  int
}

func checkAnthropic(call *Call) string {
	c := &anthropicCheck{}
	if call.Method != http.MethodPost || !strings.HasSuffix(call.Path, "/v1/messages") {
		c.complain("%s %s", call.Method, call.Path)
	}
	if call.Header.Get("Anthropic-Version") != "2023-06-01" || call.Header.Get("X-Api-Key") == "" || call.Header.Get("Content-Type") != "application/json" {
		c.complain("headers %v", call.Header)
	}
	var body any
	decoder := json.NewDecoder(bytes.NewReader(call.Body))
	decoder.UseNumber()
	if err := decoder.Decode(&body); err != nil || decoder.More() {
		return "the body is not JSON"
	}
	c.request(body)
	return c.wrong
}

func (c *anthropicCheck) complain(format string, args ...any) {
	if c.wrong == "" {
		c.wrong = fmt.Sprintf(format, args...)
	}
}

// object reads an object: its members are all known, and those that are demanded stand there.
func (c *anthropicCheck) object(at string, v any, required string, optional string) map[string]any {
	o, ok := v.(map[string]any)
	if !ok {
		c.complain("%s: expected an object", at)
		return map[string]any{}
	}
	known := strings.Fields(required + " " + optional)
	for name := range o {
		if !slices.Contains(known, name) {
			c.complain("%s.%s: extra inputs are not permitted", at, name)
		}
	}
	for name := range strings.FieldsSeq(required) {
		if _, has := o[name]; !has {
			c.complain("%s.%s: field required", at, name)
		}
	}
	return o
}

func (c *anthropicCheck) list(at string, v any) []any {
	l, ok := v.([]any)
	if !ok {
		c.complain("%s: expected a list", at)
	}
	return l
}

func (c *anthropicCheck) str(at string, v any) string {
	s, ok := v.(string)
	if !ok {
		c.complain("%s: expected a string", at)
	}
	return s
}

func (c *anthropicCheck) nonblank(at string, v any) string {
	s := c.str(at, v)
	if strings.TrimSpace(s) == "" {
		c.complain("%s: must hold more than white space", at)
	}
	return s
}

func (c *anthropicCheck) oneOf(at string, v any, words ...string) string {
	s := c.str(at, v)
	if !slices.Contains(words, s) {
		c.complain("%s: %q is none of %v", at, s, words)
	}
	return s
}

func (c *anthropicCheck) boolean(at string, v any) bool {
	b, ok := v.(bool)
	if !ok {
		c.complain("%s: expected a boolean", at)
	}
	return b
}

func (c *anthropicCheck) number(at string, v any, low, high float64) float64 {
	n, ok := v.(json.Number)
	f, err := n.Float64()
	if !ok || err != nil || f < low || f > high {
		c.complain("%s: %v is no number from %v to %v", at, v, low, high)
	}
	return f
}

func (c *anthropicCheck) integer(at string, v any, low, high float64) float64 {
	f := c.number(at, v, low, high)
	if n, ok := v.(json.Number); ok {
		if _, err := n.Int64(); err != nil {
			c.complain("%s: %v is not an integer", at, v)
		}
	}
	return f
}

const anthropicMost = 1 << 31

func (c *anthropicCheck) request(body any) {
	r := c.object("request", body, "model max_tokens messages", "system tools tool_choice thinking output_config temperature top_p top_k "+
		"stop_sequences service_tier metadata stream inference_geo container speed cache_control diagnostics")
	model, known := anthropicModels[c.nonblank("model", r["model"])]
	if c.model = model; !known {
		c.model = anthropicNewest
	}
	ceiling := c.integer("max_tokens", r["max_tokens"], 0, anthropicMost)
	if stream, has := r["stream"]; has {
		c.boolean("stream", stream)
	}
	if tools, has := r["tools"]; has {
		c.toolList(c.list("tools", tools))
	}
	if system, has := r["system"]; has {
		if blocks, isList := system.([]any); isList {
			for i, b := range blocks {
				at := fmt.Sprintf("system.%d", i)
				o := c.object(at, b, "type text", "cache_control")
				c.oneOf(at+".type", o["type"], "text")
				c.nonblank(at+".text", o["text"])
				c.mark(at, o)
			}
		} else {
			c.nonblank("system", system)
		}
	}
	thinking := c.thinkingOf(r, ceiling)
	forced := c.choice(r)
	if forced && (thinking == "" && c.model.on || thinking != "" && thinking != "disabled") {
		c.complain("tool_choice: a forced call is impossible with thinking")
	}
	format := c.output(r)
	c.samplers(r, thinking)
	c.conversation(c.list("messages", r["messages"]), thinking, format)
	if c.uses > 0 && len(c.tools) == 0 {
		c.complain("tools: requests with tool_use or tool_result blocks must define tools")
	}
	c.breakpoints()
}

func (c *anthropicCheck) samplers(r map[string]any, thinking string) {
	temperature, hasTemperature := r["temperature"]
	topP, hasTopP := r["top_p"]
	topK, hasTopK := r["top_k"]
	thinks := thinking == "enabled" || thinking == "adaptive"
	if hasTemperature {
		if f := c.number("temperature", temperature, 0, 1); f != 1 && (!c.model.sampling || thinks) {
			c.complain("temperature: only 1 is supported here")
		}
	}
	if hasTopP {
		f := c.number("top_p", topP, 0, 1)
		if f < 0.99 && !c.model.sampling || f < 0.95 && thinks {
			c.complain("top_p: %v is not supported here", f)
		}
	}
	if hasTopK {
		c.integer("top_k", topK, 0, anthropicMost)
		if !c.model.sampling || thinks {
			c.complain("top_k: not supported here")
		}
	}
	if hasTemperature && hasTopP && c.model.pick {
		c.complain("temperature and top_p cannot both be specified for this model")
	}
	if stop, has := r["stop_sequences"]; has {
		for i, s := range c.list("stop_sequences", stop) {
			c.nonblank(fmt.Sprintf("stop_sequences.%d", i), s)
		}
	}
	if tier, has := r["service_tier"]; has {
		c.oneOf("service_tier", tier, "auto", "standard_only")
	}
}

func (c *anthropicCheck) thinkingOf(r map[string]any, ceiling float64) string {
	v, has := r["thinking"]
	if !has {
		return ""
	}
	o := c.object("thinking", v, "type", "budget_tokens display")
	kind := c.oneOf("thinking.type", o["type"], "adaptive", "enabled", "disabled", "between_tools")
	if !slices.Contains(c.model.thinking, kind) {
		c.complain("thinking.type: %q is not supported by this model", kind)
	}
	budget, has := o["budget_tokens"]
	if has != (kind == "enabled") {
		c.complain("thinking.budget_tokens: belongs to enabled, and to nothing else")
	}
	if has && c.integer("thinking.budget_tokens", budget, 1024, anthropicMost) >= ceiling {
		c.complain("max_tokens: must be greater than thinking.budget_tokens")
	}
	return kind
}

func (c *anthropicCheck) output(r map[string]any) (format bool) {
	v, has := r["output_config"]
	if !has {
		return false
	}
	o := c.object("output_config", v, "", "effort format")
	if effort, has := o["effort"]; has {
		c.oneOf("output_config.effort", effort, "low", "medium", "high", "xhigh", "max")
		if !c.model.effort {
			c.complain("output_config.effort: not supported by this model")
		}
	}
	if v, has := o["format"]; has {
		f := c.object("output_config.format", v, "type schema", "")
		c.oneOf("output_config.format.type", f["type"], "json_schema")
		c.schema("output_config.format.schema", f["schema"])
		if !c.model.format {
			c.complain("output_config.format: not supported by this model")
		}
		return true
	}
	return false
}

var anthropicName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

func (c *anthropicCheck) toolList(tools []any) {
	for i, v := range tools {
		at := fmt.Sprintf("tools.%d", i)
		o := c.object(at, v, "name input_schema", "type description strict cache_control eager_input_streaming defer_loading input_examples allowed_callers")
		name := c.str(at+".name", o["name"])
		if !anthropicName.MatchString(name) || slices.Contains(c.tools, name) {
			c.complain("%s.name: %q is malformed or there already", at, name)
		}
		c.tools = append(c.tools, name)
		if kind, has := o["type"]; has {
			c.oneOf(at+".type", kind, "custom")
		}
		if description, has := o["description"]; has {
			c.nonblank(at+".description", description)
		}
		input, isObject := o["input_schema"].(map[string]any)
		if !isObject || input["type"] != "object" {
			c.complain("%s.input_schema.type: must be object", at)
		}
		if strict, has := o["strict"]; has && c.boolean(at+".strict", strict) {
			c.schema(at+".input_schema", o["input_schema"])
			if !c.model.format {
				c.complain("%s.strict: not supported by this model", at)
			}
		}
		c.mark(at, o)
	}
}

func (c *anthropicCheck) choice(r map[string]any) (forced bool) {
	v, has := r["tool_choice"]
	if !has {
		return false
	}
	if len(c.tools) == 0 {
		c.complain("tool_choice: may only be specified while providing tools")
	}
	o := c.object("tool_choice", v, "type", "name disable_parallel_tool_use")
	kind := c.oneOf("tool_choice.type", o["type"], "auto", "any", "tool", "none")
	name, named := o["name"]
	if named != (kind == "tool") || named && !slices.Contains(c.tools, c.str("tool_choice.name", name)) {
		c.complain("tool_choice.name: %v with %s", name, kind)
	}
	if flag, has := o["disable_parallel_tool_use"]; has {
		if c.boolean("tool_choice.disable_parallel_tool_use", flag); kind == "none" {
			c.complain("tool_choice.disable_parallel_tool_use: extra inputs are not permitted")
		}
	}
	forced = kind == "any" || kind == "tool"
	if forced && !c.model.force {
		c.complain("tool_choice.type: %q is not supported by this model", kind)
	}
	return forced
}

// mark notes a cache_control.
func (c *anthropicCheck) mark(at string, o map[string]any) {
	v, has := o["cache_control"]
	if !has {
		return
	}
	m := c.object(at+".cache_control", v, "type", "ttl")
	c.oneOf(at+".cache_control.type", m["type"], "ephemeral")
	ttl := "5m"
	if given, has := m["ttl"]; has {
		ttl = c.oneOf(at+".cache_control.ttl", given, "5m", "1h")
	}
	c.marks = append(c.marks, ttl)
}

func (c *anthropicCheck) breakpoints() {
	if len(c.marks) > 4 {
		c.complain("a maximum of 4 blocks with cache_control may be provided, found %d", len(c.marks))
	}
	if short := slices.Index(c.marks, "5m"); short >= 0 && slices.Contains(c.marks[short:], "1h") {
		c.complain("a cache_control block of ttl 1h must not come after one of 5m")
	}
}
