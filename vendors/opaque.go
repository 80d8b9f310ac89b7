package vendors

import (
	"encoding/base64"
	"strings"
)

// Opaque state is what a vendor wants back unchanged with the next turn: signed thinking, thought signatures. It
// travels through callers as one string, marked with the dialect and model that it belongs to, since it means nothing
// to any other: a conversation that moved to another model goes on without it.

// SealOpaque packs state of a dialect's model into Choice.opaque. No state is "".
func SealOpaque(dialect, model string, state []byte) string {
	if len(state) == 0 {
		return ""
	}
	return dialect + "." + base64.RawURLEncoding.EncodeToString([]byte(model)) + "." + base64.RawURLEncoding.EncodeToString(state)
}

// OpenOpaque unpacks Message.opaque. It returns nil for what belongs to another dialect or model, or is damaged.
func OpenOpaque(dialect, model, opaque string) []byte {
	rest, own := strings.CutPrefix(opaque, dialect+"."+base64.RawURLEncoding.EncodeToString([]byte(model))+".")
	if !own {
		return nil
	}
	state, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil {
		return nil
	}
	return state
}
