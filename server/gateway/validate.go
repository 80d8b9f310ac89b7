package gateway

import (
	"encoding/json"
	"fmt"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
)

// validate checks a text request: the rules beside the fields, then what they cannot express.
func (s *Service) validate(req *ktmsv1.GenerateTextRequest) error {
	if err := s.options.Validator.Validate(req); err != nil {
		return err
	}
	var found []status.Violation
	add := func(path, format string, args ...any) {
		found = append(found, status.Violation{Path: path, Text: fmt.Sprintf(format, args...)})
	}
	found = reservedAttributes(found, req.GetAttributes())
	object := func(path, text string) {
		if text != "" && !isObject(text) {
			add(path, "must be one JSON object")
		}
	}
	object("response_schema_json", req.GetResponseSchemaJson())
	object("extra_json", req.GetExtraJson())
	if raw := req.GetToolChoice().GetRawJson(); raw != "" && !json.Valid([]byte(raw)) {
		add("tool_choice.raw_json", "must be JSON")
	}
	for i, tool := range req.GetTools() {
		path := fmt.Sprintf("tools[%d].", i)
		object(path+"parameters_json", tool.GetParametersJson())
		object(path+"raw_json", tool.GetRawJson())
		object(path+"extra_json", tool.GetExtraJson())
	}
	for i, message := range req.GetMessages() {
		path := fmt.Sprintf("messages[%d].", i)
		object(path+"extra_json", message.GetExtraJson())
		for j, part := range message.GetParts() {
			object(fmt.Sprintf("%sparts[%d].raw_json", path, j), part.GetRawJson())
			object(fmt.Sprintf("%sparts[%d].extra_json", path, j), part.GetExtraJson())
		}
		for j, toolCall := range message.GetToolCalls() {
			object(fmt.Sprintf("%stool_calls[%d].extra_json", path, j), toolCall.GetExtraJson())
		}
	}
	if len(found) > 0 {
		return status.Invalid(found)
	}
	return nil
}

// reservedAttributes finds those that only Keystone sets.
func reservedAttributes(found []status.Violation, attributes map[string]string) []status.Violation {
	for _, name := range []string{routing.AttrModality, routing.AttrOrgID, routing.AttrTeamID} {
		if _, taken := attributes[name]; taken {
			found = append(found, status.Violation{Path: "attributes[" + name + "]", Text: "is set by Keystone and cannot be given by a caller"})
		}
	}
	if strings.HasPrefix(attributes[routing.AttrUserID], admit.ServicePrefix) {
		found = append(found, status.Violation{Path: "attributes[" + routing.AttrUserID + "]",
			Text: "begins with " + admit.ServicePrefix + ", which names a key's calls without a user"})
	}
	return found
}

func isObject(text string) bool {
	for _, c := range []byte(text) {
		switch c {
		case ' ', '\t', '\n', '\r':
			continue
		}
		return c == '{' && json.Valid([]byte(text))
	}
	return false
}
