package gemini

import (
	"encoding/json"
	"slices"

	"github.com/ai-process/ktms/vendors"
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

// openState unpacks the state; what belongs to another model or is damaged is no state.
func openState(model, opaque string) state {
	var s state
	if json.Unmarshal(vendors.OpenOpaque(dialectName, model, opaque), &s) != nil {
		return state{}
	}
	for _, raw := range s.Server {
		if !isObject(raw) {
			return state{}
		}
	}
	return s
}
