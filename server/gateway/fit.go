package gateway

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/schema"
)

// shapes are the schemas that an answer in one piece is held to.
type shapes struct {
	// response is nil where none was asked for.
	response *jsonschema.Schema
	// object: any JSON object was asked for.
	object bool
	// tools are the arguments of strict tools, by name.
	tools map[string]*jsonschema.Schema
	// calls: a call of a tool was demanded, of this one where it has a name.
	calls bool
	tool  string
}

// shapesOf compiles what a request asks its answer to follow. A schema that makes no sense is the caller's mistake, and
// is said before any vendor is called.
func (s *Service) shapesOf(req *ktmsv1.GenerateTextRequest) (*shapes, error) {
	out := &shapes{}
	switch choice := req.GetToolChoice(); choice.GetMode() {
	case ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION:
		out.calls, out.tool = true, choice.GetFunctionName()
	case ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED:
		out.calls = true
	}
	wrong := func(param string, err error) error {
		return status.Invalid([]status.Violation{{Path: param, Text: err.Error()}})
	}
	var err error
	if req.GetResponseSchemaJson() != "" || req.GetResponseSchema() != nil {
		if out.response, err = s.schemas.of(req.GetResponseSchemaJson(), func() (*schema.Schema, error) { return schema.OfResponse(req) }); err != nil {
			return nil, wrong("response_schema", err)
		}
	} else {
		out.object = req.GetJsonObject()
	}
	for i, t := range req.GetTools() {
		if !t.GetStrict() || t.GetParametersJson() == "" && t.GetParameters() == nil {
			continue
		}
		compiled, err := s.schemas.of(t.GetParametersJson(), func() (*schema.Schema, error) { return schema.OfTool(t) })
		if err != nil {
			return nil, wrong(fmt.Sprintf("tools[%d].parameters", i), err)
		}
		if out.tools == nil {
			out.tools = map[string]*jsonschema.Schema{}
		}
		out.tools[t.GetName()] = compiled
	}
	return out, nil
}

// check holds a whole answer to its schema where the vendor does not, and the arguments of strict tools to theirs. An
// answer that does not fit is tried again once, then the next model is.
func (s *shapes) check(vendor string, answer *vendors.Answer) error {
	unfit := func(format string, args ...any) error {
		return &vendors.Error{Kind: vendors.Unfit, Vendor: vendor, Message: fmt.Sprintf(format, args...)}
	}
	for _, choice := range answer.Response.GetChoices() {
		if choice.GetFinishReason() == "length" || choice.GetFinishReason() == "content_filter" || choice.GetRefusal() != "" {
			continue // cut or refused: not a matter of shape
		}
		if s.calls && !s.called(choice) {
			return unfit("the answer calls no tool, although one was demanded")
		}
		for _, call := range choice.GetToolCalls() {
			if tool, strict := s.tools[call.GetName()]; strict {
				if err := fits(tool, call.GetArguments()); err != nil {
					return unfit("the arguments of %s do not follow its schema: %v", call.GetName(), err)
				}
			}
		}
		if len(choice.GetToolCalls()) > 0 || answer.Head.Enforced || s.response == nil && !s.object {
			continue
		}
		choice.Text = unfenced(choice.GetText())
		if err := fits(s.response, choice.GetText()); err != nil {
			return unfit("the answer does not follow the schema: %v", err)
		}
	}
	return nil
}

// called reports whether a choice calls what was demanded. Some vendors can only be asked to.
func (s *shapes) called(choice *ktmsv1.Choice) bool {
	for _, call := range choice.GetToolCalls() {
		if s.tool == "" || call.GetName() == s.tool {
			return true
		}
	}
	return false
}

// fence is how models like to wrap JSON when they are told to write nothing else.
var fence = regexp.MustCompile("(?s)^\\s*```[a-zA-Z]*\\s*\\n(.*?)\\n?\\s*```\\s*$")

func unfenced(text string) string {
	if m := fence.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return text
}

var errNotObject = errors.New("it is not a JSON object")

// fits checks a JSON text; without a schema it has to be an object. The error says where and what, and quotes nothing.
func fits(shape *jsonschema.Schema, text string) error {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return errors.New("it is not JSON")
	}
	if shape == nil {
		if _, object := value.(map[string]any); !object {
			return errNotObject
		}
		return nil
	}
	err = shape.Validate(value)
	if err == nil {
		return nil
	}
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		for len(invalid.Causes) > 0 {
			invalid = invalid.Causes[0]
		}
		at := "/" + strings.Join(invalid.InstanceLocation, "/")
		return fmt.Errorf("%s breaks %q", at, strings.Join(keyword(invalid.ErrorKind), "/"))
	}
	return errors.New("it does not follow the schema")
}

func keyword(k jsonschema.ErrorKind) []string {
	if _, whole := k.(*kind.Schema); whole {
		return []string{"schema"}
	}
	return k.KeywordPath()
}

// maxSchemas bounds the cache below. An application uses a handful; the bound is for those who make one up per call.
const maxSchemas = 256

// schemas caches compiled schemas by their text.
type schemas struct {
	mu       sync.Mutex
	compiled map[string]*jsonschema.Schema
}

// of returns a schema that stands as text, or that read gives for typed callers.
func (c *schemas) of(text string, read func() (*schema.Schema, error)) (*jsonschema.Schema, error) {
	if text == "" {
		typed, err := read()
		if err != nil {
			return nil, err
		}
		text = string(typed.JSON())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.compiled[text]; ok {
		return known, nil
	}
	compiled, err := compileSchema(text)
	if err != nil {
		return nil, err
	}
	if c.compiled == nil || len(c.compiled) >= maxSchemas {
		c.compiled = map[string]*jsonschema.Schema{}
	}
	c.compiled[text] = compiled
	return compiled, nil
}

func compileSchema(text string) (*jsonschema.Schema, error) {
	const name = "urn:ktms:schema"
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, errors.New("it is not JSON")
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	compiler.UseRegexpEngine(lenientRegexp)
	if err := compiler.AddResource(name, document); err != nil {
		return nil, errors.New("it is not a JSON Schema")
	}
	compiled, err := compiler.Compile(name)
	if err != nil {
		return nil, errors.New("it is not a JSON Schema that stands on its own")
	}
	return compiled, nil
}

// noLoader keeps schemas from making this process read files or addresses.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("references to elsewhere are not followed")
}

// lenientRegexp takes patterns that this language cannot express (lookaheads) for ones that everything matches.
func lenientRegexp(pattern string) (jsonschema.Regexp, error) {
	if r, err := regexp.Compile(pattern); err == nil {
		return r, nil
	}
	return anything(pattern), nil
}

type anything string

func (a anything) String() string { return string(a) }

func (anything) MatchString(string) bool { return true }
