package vendortest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// anthropicTurn is a turn as the vendor sees it: neighbours of one role are one.
type anthropicTurn struct {
	role   string
	blocks []map[string]any
}

// conversation checks the turns and their order.
func (c *anthropicCheck) conversation(messages []any, thinking string, format bool) {
	var turns []*anthropicTurn
	for i, v := range messages {
		at := fmt.Sprintf("messages.%d", i)
		o := c.object(at, v, "role content", "")
		role := c.oneOf(at+".role", o["role"], "user", "assistant")
		if len(turns) == 0 || turns[len(turns)-1].role != role {
			turns = append(turns, &anthropicTurn{role: role})
		}
		t := turns[len(turns)-1]
		if text, isText := o["content"].(string); isText {
			c.nonblank(at+".content", text)
			t.blocks = append(t.blocks, map[string]any{"type": "text", "text": text})
			continue
		}
		blocks := c.list(at+".content", o["content"])
		if len(blocks) == 0 {
			c.complain("%s: all messages must have non-empty content", at)
		}
		for j, b := range blocks {
			block, _ := b.(map[string]any)
			c.block(fmt.Sprintf("%s.content.%d", at, j), role, b)
			t.blocks = append(t.blocks, block)
		}
	}
	if len(turns) == 0 {
		c.complain("messages: at least one message is required")
		return
	}
	if turns[0].role != "user" {
		c.complain("messages: first message must use the user role")
	}
	seen := map[string]bool{}
	for i, t := range turns {
		var next *anthropicTurn
		if i+1 < len(turns) {
			next = turns[i+1]
		}
		var before *anthropicTurn
		if i > 0 {
			before = turns[i-1]
		}
		c.pairs(i, t, before, next, seen)
	}
	last := turns[len(turns)-1]
	if last.role == "assistant" {
		c.ending(last, thinking, format)
	} else if thinking == "enabled" && len(turns) > 1 && last.blocks[0]["type"] == "tool_result" {
		if kind := turns[len(turns)-2].blocks[0]["type"]; kind != "thinking" && kind != "redacted_thinking" {
			c.complain("messages: with thinking enabled, a final assistant message must start with a thinking block, not %v", kind)
		}
	}
}

// pairs checks that calls are answered in the next turn, each once, before anything else.
func (c *anthropicCheck) pairs(at int, t, before, next *anthropicTurn, seen map[string]bool) {
	if t.role == "assistant" {
		ids := idsOf(t, "tool_use", "id")
		for _, id := range ids {
			if seen[id] {
				c.complain("messages: tool_use ids must be unique, %s is not", id)
			}
			seen[id] = true
			if next == nil || !slices.Contains(idsOf(next, "tool_result", "tool_use_id"), id) {
				c.complain("turn %d: tool_use id %s was found without a tool_result block immediately after", at, id)
			}
		}
		return
	}
	var calls []string
	if before != nil {
		calls = idsOf(before, "tool_use", "id")
	}
	answered := map[string]bool{}
	for i, b := range t.blocks {
		if b["type"] != "tool_result" {
			continue
		}
		id, _ := b["tool_use_id"].(string)
		if !slices.Contains(calls, id) || answered[id] {
			c.complain("turn %d: unexpected tool_use_id %s in tool_result blocks", at, id)
		}
		answered[id] = true
		if i > 0 && t.blocks[i-1]["type"] != "tool_result" {
			c.complain("turn %d: tool_result blocks must come before any other content", at)
		}
	}
}

func idsOf(t *anthropicTurn, kind, member string) []string {
	var ids []string
	for _, b := range t.blocks {
		if b["type"] == kind {
			id, _ := b[member].(string)
			ids = append(ids, id)
		}
	}
	return ids
}

// ending checks the beginning of an answer.
func (c *anthropicCheck) ending(t *anthropicTurn, thinking string, format bool) {
	if !c.model.prefill || format || thinking == "enabled" {
		c.complain("messages: the conversation must end with a user message")
	}
	if text, _ := t.blocks[len(t.blocks)-1]["text"].(string); text != strings.TrimRight(text, " \t\r\n") {
		c.complain("messages: final assistant content cannot end with trailing whitespace")
	}
}

// anthropicPlaces says in whose turns each kind of block may stand.
var anthropicPlaces = map[string]string{
	"text": "user assistant", "image": "user", "document": "user", "tool_use": "assistant", "tool_result": "user",
	"thinking": "assistant", "redacted_thinking": "assistant",
}

func (c *anthropicCheck) block(at, role string, v any) {
	head, isObject := v.(map[string]any)
	if !isObject {
		c.complain("%s: expected an object", at)
		return
	}
	kind := c.str(at+".type", head["type"])
	if !strings.Contains(anthropicPlaces[kind], role) || role == "" {
		c.complain("%s: a block %q cannot stand in a turn of %s", at, kind, role)
	}
	c.content(at, kind, v)
	if kind != "thinking" && kind != "redacted_thinking" {
		c.mark(at, head)
	}
}

// content checks a block whatever it stands in.
func (c *anthropicCheck) content(at, kind string, v any) {
	switch kind {
	case "text":
		o := c.object(at, v, "type text", "cache_control citations")
		c.nonblank(at+".text", o["text"])
	case "image":
		o := c.object(at, v, "type source", "cache_control")
		c.source(at+".source", o["source"], []string{"base64", "url", "file"}, []string{"image/jpeg", "image/png", "image/gif", "image/webp"})
	case "document":
		o := c.object(at, v, "type source", "cache_control title context citations")
		c.source(at+".source", o["source"], []string{"base64", "url", "file", "text"}, []string{"application/pdf"})
		if title, has := o["title"]; has {
			c.nonblank(at+".title", title)
		}
	case "thinking":
		o := c.object(at, v, "type thinking signature", "")
		c.str(at+".thinking", o["thinking"])
		c.nonblank(at+".signature", o["signature"])
	case "redacted_thinking":
		o := c.object(at, v, "type data", "")
		c.nonblank(at+".data", o["data"])
	case "tool_use":
		c.uses++
		o := c.object(at, v, "type id name input", "cache_control caller")
		c.id(at+".id", o["id"])
		if name := c.str(at+".name", o["name"]); !anthropicName.MatchString(name) {
			c.complain("%s.name: %q is malformed", at, name)
		}
		if _, isObject := o["input"].(map[string]any); !isObject {
			c.complain("%s.input: must be an object", at)
		}
	case "tool_result":
		c.uses++
		o := c.object(at, v, "type tool_use_id", "content is_error cache_control")
		c.id(at+".tool_use_id", o["tool_use_id"])
		if flag, has := o["is_error"]; has {
			c.boolean(at+".is_error", flag)
		}
		c.resultContent(at+".content", o)
	default:
		c.complain("%s.type: %q is unknown", at, kind)
	}
}

func (c *anthropicCheck) resultContent(at string, o map[string]any) {
	v, has := o["content"]
	if _, isText := v.(string); !has || isText {
		return
	}
	for i, b := range c.list(at, v) {
		inner := fmt.Sprintf("%s.%d", at, i)
		block, _ := b.(map[string]any)
		kind, _ := block["type"].(string)
		if !slices.Contains([]string{"text", "image", "document"}, kind) {
			c.complain("%s.type: %q cannot stand in a tool_result", inner, kind)
		}
		if block["cache_control"] != nil {
			c.complain("%s.cache_control: not here", inner)
		}
		c.content(inner, kind, b)
	}
}

func (c *anthropicCheck) id(at string, v any) {
	id := c.str(at, v)
	if id == "" || strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		c.complain("%s: %q should match ^[a-zA-Z0-9_-]+$", at, id)
	}
}

func (c *anthropicCheck) source(at string, v any, kinds, media []string) {
	head, _ := v.(map[string]any)
	switch c.oneOf(at+".type", head["type"], kinds...) {
	case "base64":
		o := c.object(at, v, "type media_type data", "")
		c.oneOf(at+".media_type", o["media_type"], media...)
		c.base64Of(at+".data", o["data"])
	case "url":
		o := c.object(at, v, "type url", "")
		if address := c.str(at+".url", o["url"]); !strings.HasPrefix(address, "https://") {
			c.complain("%s.url: only HTTPS URLs are supported", at)
		}
	case "file":
		o := c.object(at, v, "type file_id", "")
		c.nonblank(at+".file_id", o["file_id"])
	case "text":
		o := c.object(at, v, "type media_type data", "")
		c.oneOf(at+".media_type", o["media_type"], "text/plain")
		c.nonblank(at+".data", o["data"])
	}
}

// base64Of reads data in base64.
func (c *anthropicCheck) base64Of(at string, v any) {
	if data, err := base64.StdEncoding.Strict().DecodeString(c.nonblank(at, v)); err != nil || len(data) == 0 {
		c.complain("%s: is not base64", at)
	}
}

// What a schema that is to be enforced may hold.
var (
	anthropicKeywords = "$ref $defs type anyOf allOf description title enum const properties additionalProperties required items minItems format pattern"
	anthropicFormats  = []string{"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)

func (c *anthropicCheck) schema(at string, v any) {
	o := c.object(at, v, "", anthropicKeywords)
	if _, refers := o["$ref"]; refers && len(o) > 1 {
		c.complain("%s.$ref: must stand alone", at)
	}
	kinds, _ := o["type"].([]any)
	if (o["type"] == "object" || slices.Contains(kinds, any("object"))) && o["additionalProperties"] != false {
		c.complain("%s: for objects, additionalProperties must be false", at)
	}
	if more, has := o["additionalProperties"]; has && more != false {
		c.complain("%s.additionalProperties: must be false", at)
	}
	if least, has := o["minItems"]; has && least != json.Number("0") && least != json.Number("1") {
		c.complain("%s.minItems: 0 or 1", at)
	}
	if format, has := o["format"]; has {
		c.oneOf(at+".format", format, anthropicFormats...)
	}
	for _, name := range []string{"properties", "$defs"} {
		if named, has := o[name].(map[string]any); has {
			for property, inner := range named {
				c.schema(at+"."+name+"."+property, inner)
			}
		}
	}
	for _, name := range []string{"anyOf", "allOf"} {
		if list, has := o[name].([]any); has {
			for i, inner := range list {
				c.schema(fmt.Sprintf("%s.%s.%d", at, name, i), inner)
			}
		}
	}
	if items, has := o["items"]; has {
		c.schema(at+".items", items)
	}
}
