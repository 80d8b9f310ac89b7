package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

func TestParseLosesNothing(t *testing.T) {
	for in, want := range map[string]string{
		`{"z":1.0,"a":9007199254740993,"m":{"b":[],"a":{}},"e":1e400}`: `{"z":1.0,"a":9007199254740993,"m":{"b":[],"a":{}},"e":1e400}`,
		` { "type" : [ "string" , "null" ] } `:                         `{"type":["string","null"]}`,
		`{"a":1,"a":2}`:                                                `{"a":2}`,
		`{"k":"\u00e9\n\u2028"}`:                                       `{"k":"\u00e9\n\u2028"}`,
	} {
		s, err := Parse([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got := string(s.JSON()); got != want {
			t.Errorf("%s became %s", in, got)
		}
	}
	for _, in := range []string{``, `[]`, `"x"`, `{`, `{"a":}`, strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)} {
		if _, err := Parse([]byte(in)); err == nil {
			t.Errorf("%.40q was read", in)
		}
	}
}

func TestAdapt(t *testing.T) {
	small := []string{"type", "properties", "required", "items", "enum", "anyOf", "additionalProperties", "format", "minItems", "$ref", "$defs"}
	for _, c := range []struct {
		name, in string
		rules    Rules
		want     string
		moved    []string
	}{
		{"nothing to do", `{"type":"object","x-own":1}`, Rules{}, `{"type":"object","x-own":1}`, nil},
		{
			"keywords move into the description", `{"type":"integer","minimum":3,"description":"How many.","pattern":"^a$"}`, Rules{Keywords: small},
			`{"type":"integer","description":"How many.\nminimum: 3; pattern: \"^a$\""}`, []string{"minimum", "pattern"},
		},
		{
			"properties named like keywords stay", `{"type":"object","properties":{"minimum":{"type":"string"},"$ref":{"type":"string"},"additionalProperties":{"maximum":2}},"required":["minimum"]}`,
			Rules{Keywords: small, Inline: true},
			`{"type":"object","properties":{"minimum":{"type":"string"},"$ref":{"type":"string"},"additionalProperties":{"description":"maximum: 2"}},"required":["minimum"]}`, []string{"maximum"},
		},
		{"values are not schemas", `{"enum":[{"minimum":1}],"default":{"$ref":"#/x"}}`, Rules{Keywords: append(small, "default"), Inline: true}, `{"enum":[{"minimum":1}],"default":{"$ref":"#/x"}}`, nil},
		{"silent and hints", `{"$schema":"s","title":"T","type":"string","examples":["a"]}`, Rules{Keywords: small}, `{"type":"string","description":"title: \"T\"; examples: [\"a\"]"}`, nil},
		{"formats", `{"items":[{"format":"uuid"},{"format":"int64"}]}`, Rules{Keywords: small, Formats: []string{"uuid"}}, `{"items":[{"format":"uuid"},{"description":"format: \"int64\""}]}`, []string{"format"}},
		{"const becomes enum", `{"const":"a"}`, Rules{Keywords: small}, `{"enum":["a"]}`, nil},
		{"oneOf becomes anyOf", `{"oneOf":[{"type":"string"},{"const":1}]}`, Rules{Keywords: small, Rename: map[string]string{"oneOf": "anyOf"}}, `{"anyOf":[{"type":"string"},{"enum":[1]}]}`, nil},
		{
			"values that are not taken", `{"type":"array","minItems":4,"items":{"minItems":1}}`,
			Rules{Keywords: small, Takes: func(k string, v json.RawMessage) bool { return k != "minItems" || string(v) == "1" }},
			`{"type":"array","items":{"minItems":1},"description":"minItems: 4"}`, []string{"minItems"},
		},
		{
			"closing", `{"type":"object","properties":{"a":{"type":["object","null"]},"b":{"type":"string"}}}`, Rules{Close: true},
			`{"type":"object","properties":{"a":{"type":["object","null"],"additionalProperties":false},"b":{"type":"string"}},"additionalProperties":false}`, nil,
		},
		{
			"references are written out", `{"$ref":"#/$defs/A","$defs":{"A":{"type":"object","properties":{"b":{"$ref":"#/$defs/B","description":"mine"}}},"B":{"type":"string","description":"theirs"}}}`,
			Rules{Keywords: small, Inline: true}, `{"type":"object","properties":{"b":{"description":"mine","type":"string"}}}`, nil,
		},
		{
			"a single allOf", `{"properties":{"a":{"allOf":[{"$ref":"#/definitions/A"}],"description":"d"}},"definitions":{"A":{"type":"string"}}}`, Rules{Keywords: small, Inline: true},
			`{"properties":{"a":{"description":"d","type":"string"}}}`, nil,
		},
		{
			"a schema within itself", `{"$ref":"#/$defs/T","$defs":{"T":{"type":"object","properties":{"next":{"$ref":"#/$defs/T"},"self":{"$ref":"#"}}}}}`, Rules{Keywords: small, Inline: true},
			`{"type":"object","properties":{"next":{"description":"the same shape again as #/$defs/T"},"self":{"description":"the same shape again as #/$defs/T"}}}`, []string{"$ref"},
		},
		{
			"escaped pointers", `{"properties":{"a":{"$ref":"#/$defs/x~1y%20z"}},"$defs":{"x/y z":{"type":"null"}}}`, Rules{Inline: true},
			`{"properties":{"a":{"type":"null"}}}`, nil,
		},
	} {
		s, err := Parse([]byte(c.in))
		if err != nil {
			t.Fatal(err)
		}
		moved, err := s.Adapt(c.rules)
		if err != nil || string(s.JSON()) != c.want || !slices.Equal(moved, c.moved) {
			t.Errorf("%s:\n got %s %v %v\nwant %s %v", c.name, s.JSON(), moved, err, c.want, c.moved)
		}
	}
}

// Schemas that hold together for one value become one, and what cannot be said at once is said to be lost.
func TestAdaptMerges(t *testing.T) {
	closing := Rules{Keywords: []string{"type", "properties", "required", "items", "enum", "anyOf", "allOf", "additionalProperties"}, Inline: true, Close: true,
		Takes: func(k string, v json.RawMessage) bool { return k != "additionalProperties" || string(v) == "false" }}
	const base = `"$defs":{"Base":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}}`
	for _, c := range []struct {
		name, in, want string
		moved          []string
		narrowed       bool
	}{
		{
			"inheritance", `{` + base + `,"allOf":[{"$ref":"#/$defs/Base"}],"type":"object","properties":{"b":{"type":"integer"}},"required":["b"]}`,
			`{"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"string"}},"required":["b","a"],"additionalProperties":false}`, nil, false,
		},
		{
			"beside a reference", `{` + base + `,"$ref":"#/$defs/Base","properties":{"b":{}},"required":["b"]}`,
			`{"properties":{"b":{},"a":{"type":"string"}},"required":["b","a"],"type":"object","additionalProperties":false}`, nil, false,
		},
		{
			"two that hold at once", `{"allOf":[{"type":"object","properties":{"a":{}}},{"type":"object","properties":{"b":{}}}]}`,
			`{"type":"object","properties":{"a":{},"b":{}},"additionalProperties":false}`, nil, false,
		},
		{
			"a narrower enum", `{"properties":{"b":{"type":"string","enum":["x","y"]},"c":{"$ref":"#/properties/b","enum":["x","z"]}}}`,
			`{"properties":{"b":{"type":"string","enum":["x","y"]},"c":{"enum":["x"],"type":"string"}},"additionalProperties":false}`, nil, false,
		},
		{"types in common", `{"allOf":[{"type":["string","null"]},{"type":"string"}]}`, `{"type":"string"}`, nil, false},
		{"no type in common", `{"type":"integer","allOf":[{"type":"string"}]}`, `{"type":"integer","description":"type: \"string\""}`, []string{"type"}, false},
		{
			"branches beside properties", `{"type":"object","properties":{"kind":{}},"anyOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}`,
			`{"type":"object","properties":{"kind":{}},"anyOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}},"additionalProperties":false}],"additionalProperties":false}`, nil, true,
		},
		{
			"branches on their own", `{"anyOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}`,
			`{"anyOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}},"additionalProperties":false}]}`, nil, false,
		},
		{"an undeclared member is required", `{"type":"object","properties":{"a":{}},"required":["z"]}`, `{"type":"object","properties":{"a":{}},"required":["z"],"additionalProperties":false}`, nil, true},
		{
			"names by pattern", `{"type":"object","properties":{"a":{}},"patternProperties":{"^x":{}}}`,
			`{"type":"object","properties":{"a":{}},"description":"patternProperties: {\"^x\":{}}","additionalProperties":false}`, []string{"patternProperties"}, true,
		},
		{"any object", `{"properties":{"a":{"type":"object"}}}`, `{"properties":{"a":{"type":"object","additionalProperties":false}},"additionalProperties":false}`, nil, true},
		{"a map", `{"type":"object","properties":{},"additionalProperties":{"type":"string"}}`, `{"type":"object","properties":{},"description":"additionalProperties: {\"type\":\"string\"}","additionalProperties":false}`, []string{"additionalProperties"}, true},
		{"no members at all", `{"type":"object","properties":{}}`, `{"type":"object","properties":{},"additionalProperties":false}`, nil, false},
		{"closed by its author", `{"type":"object","additionalProperties":false}`, `{"type":"object","additionalProperties":false}`, nil, false},
	} {
		s, err := Parse([]byte(c.in))
		if err != nil {
			t.Fatal(err)
		}
		moved, err := s.Adapt(closing)
		if err != nil || string(s.JSON()) != c.want || !slices.Equal(moved, c.moved) || s.Narrowed() != c.narrowed {
			t.Errorf("%s:\n got %s %v %v, narrowed %v\nwant %s %v, narrowed %v", c.name, s.JSON(), moved, err, s.Narrowed(), c.want, c.moved, c.narrowed)
		}
	}
}

// Neither depth nor size may cost more than a look at each byte.
func TestLargeSchemasAreCheap(t *testing.T) {
	deep := strings.Repeat(`{"properties":{"a":`, 30) + `{"description":"` + strings.Repeat("x", 4<<20) + `"}` + strings.Repeat("}}", 30)
	wide := `{"properties":{"p":{}` + strings.Repeat(`,"p":{}`, 25_000) + `}}`
	for name, in := range map[string]string{"deep": deep, "wide": wide} {
		s, err := Parse([]byte(in))
		if name == "wide" { // too many nodes
			if err == nil {
				t.Error("wide was read")
			}
			continue
		}
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err := s.Adapt(Rules{Inline: true, Close: true, Takes: func(string, json.RawMessage) bool { return true }}); err != nil {
			t.Error(name, err)
		}
	}
}

func TestAdaptRefuses(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString(`{"$ref":"#/$defs/L0","$defs":{"L40":{}`)
	for i := range 40 {
		fmt.Fprintf(&bomb, `,"L%d":{"properties":{"a":{"$ref":"#/$defs/L%d"},"b":{"$ref":"#/$defs/L%d"}}}`, i, i+1, i+1)
	}
	bomb.WriteString("}}")
	for name, in := range map[string]string{
		"nowhere": `{"$ref":"#/$defs/A"}`, "elsewhere": `{"$ref":"https://example.com/a.json"}`, "an anchor": `{"$ref":"#a"}`,
		"not a string": `{"$ref":1}`, "a bomb": bomb.String(),
	} {
		s, err := Parse([]byte(in))
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err := s.Adapt(Rules{Inline: true}); err == nil {
			t.Errorf("%s became %.100s", name, s.JSON())
		}
	}
}

func TestTypedSchemas(t *testing.T) {
	typed, err := structpb.NewStruct(map[string]any{
		"type": "object", "additional_properties": false, "required": []any{"a", "b"},
		"properties": map[string]any{
			"a": map[string]any{"type": "string", "nullable": true}, "b": map[string]any{"enum": []any{"x"}, "nullable": true},
			"nullable": map[string]any{"$ref": "#", "nullable": true},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"additionalProperties":false,"properties":{"a":{"type":["string","null"]},"b":{"enum":["x",null]},` +
		`"nullable":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["a","b"],"type":"object"}`
	for name, s := range map[string]func() (*Schema, error){
		"response": func() (*Schema, error) { return OfResponse(&ktmsv1.GenerateTextRequest{ResponseSchema: typed}) },
		"tool":     func() (*Schema, error) { return OfTool(&ktmsv1.Tool{Parameters: typed}) },
	} {
		got, err := s()
		if err != nil || string(got.JSON()) != want {
			t.Errorf("%s: %s %v", name, got.JSON(), err)
		}
	}
	if s, err := OfTool(&ktmsv1.Tool{}); s != nil || err != nil {
		t.Error(s, err)
	}
}

func TestCloseIfComplete(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`: `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`,
		`{"type":"object","properties":{"l":{"type":"array","items":{"type":["object","null"],"properties":{"a":{"enum":[1]}},"required":["a"]}}},"required":["l"],"additionalProperties":false}`: `{"type":"object","properties":{"l":{"type":"array","items":{"type":["object","null"],"properties":{"a":{"enum":[1]}},"required":["a"],"additionalProperties":false}}},"required":["l"],"additionalProperties":false}`,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"required":["a"],"additionalProperties":false,"$defs":{"A":{"properties":{},"type":"object","additionalProperties":false}}}`:    `{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"required":["a"],"additionalProperties":false,"$defs":{"A":{"properties":{},"type":"object","additionalProperties":false}}}`,
		`{"type":"object","properties":{"a":{"type":"string"}}}`: "",
		`{"type":"object"}`: "",
		`{"type":"object","properties":{},"additionalProperties":true}`:                                                                                               "",
		`{"type":"string","enum":["x"]}`:                                                                                                                              "", // no object
		`{"type":"array","items":{"type":"string"}}`:                                                                                                                  "",
		`{"type":"object","anyOf":[{"type":"object","properties":{}}],"properties":{}}`:                                                                               "",
		`{"type":"object","properties":{"a":true},"required":["a"]}`:                                                                                                  "",
		`{"type":"object","properties":{"data":{"title":"Data"}},"required":["data"]}`:                                                                                "", // anything
		`{"type":"object","properties":{"a":{"type":"array","uniqueItems":true,"items":{"type":"string"}}},"required":["a"]}`:                                         "",
		`{"type":"object","properties":{"a":{"oneOf":[{"type":"string"}]}},"required":["a"]}`:                                                                         "",
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"required":["a"],"$defs":{"A":{"type":"object","properties":{"b":{"type":"null"}},"required":[]}}}`: "",
	} {
		s, err := Parse([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		complete := s.CloseIfComplete()
		if complete != (want != "") || complete && string(s.JSON()) != want || !complete && string(s.JSON()) != in {
			t.Errorf("%s: %v %s", in, complete, s.JSON())
		}
	}
}

// FuzzAdapt: whatever comes in, valid JSON comes out, in bounded time, and a second pass changes nothing.
func FuzzAdapt(f *testing.F) {
	f.Add(`{"$ref":"#/$defs/T","$defs":{"T":{"properties":{"n":{"$ref":"#/$defs/T"}}}}}`)
	f.Add(`{"oneOf":[{"const":1}],"allOf":[{"$ref":"#"}],"type":["object"],"properties":{"a":{"minimum":1}}}`)
	rules := Rules{
		Keywords: []string{"type", "properties", "items", "enum", "anyOf", "required", "additionalProperties"}, Inline: true, Close: true,
		Rename: map[string]string{"oneOf": "anyOf"},
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := Parse([]byte(in))
		if err != nil {
			return
		}
		if _, err := s.Adapt(rules); err != nil {
			return
		}
		once := s.JSON()
		if !json.Valid(once) {
			t.Fatalf("%s", once)
		}
		again, err := Parse(once)
		if err != nil {
			return // deeper than a schema may be, by inlining
		}
		if moved, err := again.Adapt(rules); err != nil || moved != nil || string(again.JSON()) != string(once) {
			t.Fatalf("%s became %s, %v %v", once, again.JSON(), moved, err)
		}
	})
}

func TestCheckable(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"integer","nullable":true}`:                                             `{"type":["integer","null"]}`,
		`{"allOf":[{"$ref":"#/$defs/A"},{"minimum":1}],"$defs":{"A":{"type":"number"}}}`: `{"allOf":[{"type":"number"},{"minimum":1}]}`,
		`{"properties":{"t":{"$ref":"#"}}}`:                                              `{"properties":{"t":{"properties":{"t":{"description":"the same shape again as #"}}}}}`,
		`{"multipleOf":0.10,"maximum":9007199254740993}`:                                 `{"maximum":9007199254740993,"multipleOf":0.10}`,
		`{"$ref":"#/$defs/nowhere"}`:                                                     "",
		`{"$ref":"https://example.com/x"}`:                                               "",
		`{"description":"` + strings.Repeat("x", maxChecked) + `"}`:                      "",
		`{"enum":[0` + strings.Repeat(",1", maxCheckedNodes) + `]}`:                      "",
		`{"allOf":[{"$ref":"#/$defs/a20"}],"$defs":{"a0":{}` + doubling(20) + `}}`:       "",
		strings.Repeat(`{"items":`, maxDepth+1) + "{}" + strings.Repeat("}", maxDepth+1): "",
	} {
		got, err := Checkable([]byte(in))
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%.80s: %s %v", in, got, err)
		}
	}
}

// doubling are n schemas, each of which holds the one before twice.
func doubling(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, `,"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i+1, i, i)
	}
	return out.String()
}
