package claude

import (
	"encoding/json"

	"github.com/ai-process/ktms/vendors/schema"
)

// Rules are what Claude enforces of a schema. References are written out, since one must stand alone here, without
// the description that generators like to put beside it, and must not lead back to itself.
var Rules = schema.Rules{
	Keywords: []string{
		"type", "anyOf", "allOf", "description", "title", "enum", "const", "properties", "additionalProperties", "required",
		"items", "minItems", "format", "pattern",
	},
	Takes: func(keyword string, value json.RawMessage) bool {
		switch keyword {
		case "additionalProperties":
			return string(value) == "false"
		case "minItems":
			return string(value) == "0" || string(value) == "1"
		}
		return true
	},
	Formats: []string{"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"},
	Rename:  map[string]string{"oneOf": "anyOf"},
	Inline:  true,
	Close:   true,
}
