package gemini

import (
	"bytes"
	"encoding/json"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
	"github.com/ai-process/ktms/vendors/schema"
)

const jsonType = "application/json"

// format is the form that the answer is to have.
type format struct {
	mime     string
	schema   json.RawMessage
	enforced bool
}

// schemaInstruction asks for a schema where the vendor does not take one: beside functions, before 3.0.
const schemaInstruction = "When you give your answer, write it as one JSON value that follows this JSON Schema, and nothing else:\n"

// objectInstruction asks for JSON in the same place.
const objectInstruction = "When you give your answer, write it as one JSON object, and nothing else."

// rules are what responseJsonSchema and parametersJsonSchema take.
var rules = schema.Rules{
	Keywords: []string{
		"$id", "$anchor", "type", "format", "title", "description", "enum", "items", "prefixItems", "minItems", "maxItems",
		"minimum", "maximum", "anyOf", "oneOf", "properties", "propertyOrdering", "additionalProperties", "required",
	},
	Takes: takes,
	// Formats are those that the reference names.
	Formats: []string{"date-time", "date", "time", "int32", "int64", "float", "double"},
	Rename:  map[string]string{"oneOf": "anyOf"},
	Inline:  true,
}

// takes decides on values: an enum may hold strings and numbers alone.
func takes(keyword string, value json.RawMessage) bool {
	if keyword != "enum" {
		return true
	}
	var items []json.RawMessage
	if json.Unmarshal(value, &items) != nil {
		return false
	}
	for _, item := range items {
		if c := item[0]; c != '"' && c != '-' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// adapted says a schema in the vendor's words. What it cannot say is reported under param.
func (e *encoder) adapted(param string, s *schema.Schema) (text json.RawMessage, whole bool) {
	// anyOf allows more than the oneOf that it stands for.
	loose := bytes.Contains(s.JSON(), []byte(`"oneOf"`))
	moved, err := s.Adapt(rules)
	if err != nil {
		e.ledger.Refuse(param, "the schema "+err.Error())
		return nil, false
	}
	for _, keyword := range moved {
		e.ledger.Drop(param + "." + keyword)
	}
	return s.JSON(), len(moved) == 0 && !loose
}

// responseFormat decides on the form of the answer.
func (e *encoder) responseFormat() {
	r := e.req
	apart := !e.gen.together && (len(e.functions) > 0 || e.search)
	field := vendors.ResponseSchema
	if r.GetResponseSchemaJson() != "" {
		field = vendors.ResponseSchemaJSON
	}
	s, err := schema.OfResponse(r)
	switch {
	case err != nil:
		e.ledger.Wrong(field.Param(), "the schema cannot be read: "+err.Error())
	case s == nil && e.ledger.Carries(vendors.JSONObject, r.GetJsonObject()):
		if apart {
			e.system = append(e.system, part{text: objectInstruction})
			return
		}
		e.format.mime = jsonType
	case s != nil && e.ledger.Carries(field, true):
		e.ledger.Carries(vendors.SchemaStrict, r.ResponseSchemaStrict != nil)
		if apart {
			e.ledger.Drop(field.Param())
			e.system = append(e.system, part{text: schemaInstruction + string(e.entitled(s.JSON()))})
			return
		}
		text, whole := e.adapted(field.Param(), s)
		if text != nil {
			e.format = format{mime: jsonType, schema: e.entitled(text), enforced: whole}
		}
	}
}

// entitled gives a schema the name and the description of the request.
func (e *encoder) entitled(text json.RawMessage) json.RawMessage {
	members, err := openaiapi.ParseMembers(text)
	if err != nil {
		return text // the schema is an object, or it would not be here
	}
	out := make(openaiapi.Members, 0, 2+len(members))
	name, description := e.req.GetResponseSchemaName(), e.req.GetResponseSchemaDescription()
	if e.ledger.Carries(vendors.SchemaName, name != "") && members.Get("title") == nil {
		out.Add("title", openaiapi.AppendString(nil, name))
	}
	if e.ledger.Carries(vendors.SchemaDescription, description != "") {
		var own string
		if json.Unmarshal(members.Take("description"), &own) == nil && own != "" {
			description += "\n" + own
		}
		out.Add("description", openaiapi.AppendString(nil, description))
	}
	return append(out, members...).AppendJSON(nil)
}
