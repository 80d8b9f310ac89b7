package gemini

import (
	"encoding/json"
	"slices"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// dialectName marks the opaque state of this dialect.
const dialectName = "gemini"

// state is what has to come back unchanged with the next turn.
type state struct {
	// Text is the signature of the text.
	Text string `json:"text,omitempty"`
	// Calls are the signatures of the calls, by their place; empty where there is none.
	Calls []string `json:"calls,omitempty"`
	// Server are the parts in which the vendor used a tool of its own, as JSON text: encoding/json would rewrite JSON.
	Server []string `json:"server,omitempty"`
}

func (s *state) empty() bool {
	return s.Text == "" && len(s.Server) == 0 && !slices.ContainsFunc(s.Calls, func(c string) bool { return c != "" })
}

// seal packs the state for the caller; "" if there is none.
func (s *state) seal(model string) string {
	if s.empty() {
		return ""
	}
	text, err := json.Marshal(s)
	if err != nil { // strings alone; it cannot fail
		return ""
	}
	return vendors.SealOpaque(dialectName, model, text)
}

// isServerPart reports whether JSON is what Server holds. Whoever made a state up could say anything otherwise, in the
// model's name.
func isServerPart(raw string) bool {
	members, err := openaiapi.ParseMembers([]byte(raw))
	if err != nil {
		return false
	}
	kinds := 0
	for _, m := range members {
		switch m.Name {
		case "toolCall", "toolResponse":
			if kinds++; !isObject(string(m.Value)) {
				return false
			}
		case "thought", "thoughtSignature":
		default:
			return false
		}
	}
	return kinds == 1
}

// openState unpacks the state; what belongs to another model or is damaged is no state.
func openState(model, opaque string) state {
	var s state
	if json.Unmarshal(vendors.OpenOpaque(dialectName, model, opaque), &s) != nil {
		return state{}
	}
	for _, raw := range s.Server {
		if !isServerPart(raw) {
			return state{}
		}
	}
	return s
}
