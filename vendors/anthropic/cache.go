package anthropic

import (
	"encoding/json"
	"slices"

	"github.com/ai-process/ktms/vendors/claude"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

const cacheControl = "cache_control"

// mark reads a caller's cache_control; None if there is none, or not one that the vendor takes.
func (e *encoder) mark(value json.RawMessage) claude.Lifetime {
	if value == nil || string(value) == "null" {
		return claude.None
	}
	members, err := openaiapi.ParseMembers(value)
	lifetime, ephemeral, known := claude.FiveMinutes, false, err == nil
	for _, m := range members {
		switch text := string(m.Value); {
		case m.Name == "type" && text == `"ephemeral"`:
			ephemeral = true
		case m.Name == "ttl" && text == `"1h"`:
			lifetime = claude.Hour
		case m.Name == "ttl" && (text == `"5m"` || text == "null"):
		default:
			known = false
		}
	}
	if !known || !ephemeral {
		e.Drop(cacheControl)
		return claude.None
	}
	return lifetime
}

// breakpoint writes a breakpoint, if there is one.
func (w *writer) breakpoint(lifetime claude.Lifetime) {
	switch lifetime {
	case claude.None:
	case claude.FiveMinutes:
		w.raw(cacheControl, []byte(`{"type":"ephemeral"}`))
	case claude.Hour:
		w.raw(cacheControl, []byte(`{"type":"ephemeral","ttl":"1h"}`))
	}
}

// breakpoints holds the caller's breakpoints to the vendor's rules and adds Keystone's own where the model asks for them:
// after the latest turn of a conversation, after the instructions, after the tools, and after the user's turn before, as
// far as there is room. The vendor looks back for what it has over 20 blocks alone, which one turn may exceed.
func (e *encoder) breakpoints() {
	var places []claude.Place
	var marks []*claude.Lifetime
	add := func(mark *claude.Lifetime, head bool) {
		places, marks = append(places, claude.Place{Head: head, Set: *mark}), append(marks, mark)
	}
	tools, system, latest, before := -1, -1, -1, -1
	for _, t := range e.tools {
		add(&t.cache, true)
		tools = len(places) - 1
	}
	for _, b := range e.system {
		add(&b.cache, true)
		system = len(places) - 1
	}
	for _, t := range e.turns {
		at := -1
		for _, b := range t.blocks {
			if b.raw == nil {
				add(&b.cache, false)
				at = len(places) - 1
			}
		}
		if t.role == "user" {
			before, latest = latest, at
		}
	}
	if claude.Trim(places) {
		e.Drop(cacheControl)
	}
	if slices.Contains(e.target.Capabilities, "prompt_cache") {
		if before < 0 { // nothing tells that a conversation goes on
			latest = -1
		}
		claude.Add(places, latest, system, tools, before)
	}
	for i, mark := range marks {
		*mark = places[i].Set
	}
}
