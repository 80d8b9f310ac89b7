package anthropic

import (
	"encoding/json"
	"slices"

	"github.com/ai-process/ktms/vendors/openaiapi"
)

const (
	cacheControl = "cache_control"
	// maxBreakpoints is how many breakpoints the vendor takes in one request.
	maxBreakpoints = 4
)

// ephemeral is the breakpoint that Keystone sets itself; it lasts five minutes.
var ephemeral = []byte(`{"type":"ephemeral"}`)

// mark reads a caller's cache_control; nil if there is none, or not one that the vendor takes.
func (e *encoder) mark(value json.RawMessage) []byte {
	if value == nil || string(value) == "null" {
		return nil
	}
	members, err := openaiapi.ParseMembers(value)
	for _, m := range members {
		known := m.Name == "type" && string(m.Value) == `"ephemeral"` ||
			m.Name == "ttl" && (string(m.Value) == `"5m"` || string(m.Value) == `"1h"`)
		if !known {
			members = nil
			break
		}
	}
	if err != nil || members.Get("type") == nil {
		e.Drop(cacheControl)
		return nil
	}
	return value
}

// lasting reports whether a breakpoint lasts an hour.
func lasting(mark []byte) bool {
	members, err := openaiapi.ParseMembers(mark)
	return err == nil && string(members.Get("ttl")) == `"1h"`
}

// breakpoints holds the caller's breakpoints to the vendor's rules and adds Keystone's own where the model asks for them:
// after the latest turn of a conversation, after the instructions and after the tools, as far as there is room.
func (e *encoder) breakpoints() {
	places := e.places()
	count, short := 0, false
	lastHour := -1 // the last place with a breakpoint of an hour
	for i, at := range places {
		if *at == nil {
			continue
		}
		hour := lasting(*at)
		if count == maxBreakpoints || hour && short { // the vendor wants those of an hour first
			*at = nil
			e.Drop(cacheControl)
			continue
		}
		if hour {
			lastHour = i
		} else {
			short = true
		}
		count++
	}
	if !slices.Contains(e.target.Capabilities, "prompt_cache") {
		return
	}
	for _, at := range e.wanted() {
		i := slices.Index(places, at)
		if *at == nil && count < maxBreakpoints && i > lastHour {
			*at = ephemeral
			count++
		}
	}
}

// places are all that can have a breakpoint, in the order of the prompt: tools, system, messages.
func (e *encoder) places() []*[]byte {
	var out []*[]byte
	for _, t := range e.tools {
		out = append(out, &t.cache)
	}
	for _, b := range e.system {
		out = append(out, &b.cache)
	}
	for _, t := range e.turns {
		for _, b := range t.blocks {
			if b.raw == nil {
				out = append(out, &b.cache)
			}
		}
	}
	return out
}

// wanted are the places for Keystone's own, the one that saves most first.
func (e *encoder) wanted() []*[]byte {
	var out []*[]byte
	users := 0
	for _, t := range e.turns {
		if t.role == "user" {
			users++
		}
	}
	if users > 1 {
		for _, b := range slices.Backward(e.turns[len(e.turns)-1].blocks) {
			if b.raw == nil {
				out = append(out, &b.cache)
				break
			}
		}
	}
	if n := len(e.system); n > 0 {
		out = append(out, &e.system[n-1].cache)
	}
	if n := len(e.tools); n > 0 {
		out = append(out, &e.tools[n-1].cache)
	}
	return out
}
