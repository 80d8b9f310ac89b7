package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
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
	// unchecked: one was asked for that cannot be checked. The answer is JSON all the same.
	unchecked bool
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
		out.unchecked = out.response == nil
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
		if compiled == nil {
			continue
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
		if s.calls && !s.called(choice) && !slices.Contains(answer.Head.Dropped, vendors.ToolChoiceRequired.Param()) {
			return unfit("the answer calls no tool, although one was demanded")
		}
		for _, call := range choice.GetToolCalls() {
			if tool, strict := s.tools[call.GetName()]; strict {
				if err := fits(tool, call.GetArguments()); err != nil {
					return unfit("the arguments of %s do not follow its schema: %v", call.GetName(), err)
				}
			}
		}
		if len(choice.GetToolCalls()) > 0 || answer.Head.Enforced || s.response == nil && !s.object && !s.unchecked {
			continue
		}
		choice.Text = unfenced(choice.GetText())
		if s.unchecked {
			if !json.Valid([]byte(choice.GetText())) {
				return unfit("the answer does not follow the schema: %v", errNotJSON)
			}
			continue
		}
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

var (
	errNotJSON   = errors.New("it is not JSON")
	errNotObject = errors.New("it is not a JSON object")
	errNumber    = errors.New("it holds a number that is out of range")
	errUnfit     = errors.New("it does not follow the schema")
)

// fits checks a JSON text; without a schema it has to be an object. The error says where and what.
func fits(shape *jsonschema.Schema, text string) (err error) {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return errNotJSON
	}
	if shape == nil {
		if _, object := value.(map[string]any); !object {
			return errNotObject
		}
		return nil
	}
	if !countable(value) {
		return errNumber
	}
	defer func() { // the text is a model's, and the library is not made for enemies
		if recover() != nil {
			err = errUnfit
		}
	}()
	err = shape.Validate(value)
	if err == nil {
		return nil
	}
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		for len(invalid.Causes) > 0 {
			invalid = invalid.Causes[0]
		}
		at := "/" + strings.Join(invalid.InstanceLocation, "/")
		if len(at) > maxLocation {
			at = strings.ToValidUTF8(at[:maxLocation], "") + "..."
		}
		return fmt.Errorf("%s breaks %q", at, strings.Join(keyword(invalid.ErrorKind), "/"))
	}
	return errUnfit
}

// maxLocation bounds the place that an error names: names of members are the model's.
const maxLocation = 100

// maxExponent is the longest exponent of a number that is worked with; the library writes numbers out.
const maxExponent = 3

// countable reports whether all numbers of a value are of a size that can be worked with.
func countable(value any) bool {
	switch value := value.(type) {
	case json.Number:
		at := strings.IndexAny(string(value), "eE")
		return at < 0 || len(strings.TrimLeft(string(value)[at+1:], "+-0")) <= maxExponent
	case []any:
		return !slices.ContainsFunc(value, func(item any) bool { return !countable(item) })
	case map[string]any:
		for _, item := range value {
			if !countable(item) {
				return false
			}
		}
	}
	return true
}

func keyword(k jsonschema.ErrorKind) []string {
	if _, whole := k.(*kind.Schema); whole {
		return []string{"schema"}
	}
	return k.KeywordPath()
}

const (
	// maxSchemas bounds the cache below. An application uses a handful; the bound is for those who make one up per call.
	maxSchemas = 256
	// maxCached is the longest text that is worth keeping.
	maxCached = 32 << 10
)

// schemas caches compiled schemas by their text. A nil schema is one that cannot be checked.
type schemas struct {
	mu       sync.Mutex
	compiled map[string]*jsonschema.Schema
}

// of returns a schema that stands as text, or that read gives for typed callers; nil if it cannot be checked.
func (c *schemas) of(text string, read func() (*schema.Schema, error)) (*jsonschema.Schema, error) {
	if text == "" {
		typed, err := read()
		if err != nil {
			return nil, err
		}
		text = string(typed.JSON())
	}
	c.mu.Lock()
	known, found := c.compiled[text]
	c.mu.Unlock()
	if found {
		return known, nil
	}
	compiled, err := compileSchema(text)
	if err != nil {
		return nil, err
	}
	if len(text) <= maxCached {
		c.keep(text, compiled)
	}
	return compiled, nil
}

func (c *schemas) keep(text string, compiled *jsonschema.Schema) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.compiled == nil {
		c.compiled = map[string]*jsonschema.Schema{}
	}
	for other := range c.compiled {
		if len(c.compiled) < maxSchemas {
			break
		}
		delete(c.compiled, other)
	}
	c.compiled[text] = compiled
}

// compileSchema compiles a schema to check answers with. An error is a mistake of the caller. A schema that this library
// cannot read, as older drafts may be, is nil: whether the vendor takes it is the vendor's affair.
func compileSchema(text string) (compiled *jsonschema.Schema, err error) {
	const name = "urn:ktms:schema"
	checkable, err := schema.Checkable([]byte(text))
	switch {
	case errors.Is(err, schema.ErrTooLarge):
		return nil, nil //nolint:nilnil // cannot be checked
	case err != nil:
		return nil, err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(checkable))
	if err != nil {
		return nil, errNotJSON
	}
	if !countable(document) {
		return nil, errNumber
	}
	defer func() {
		if recover() != nil {
			compiled, err = nil, nil
		}
	}()
	for _, draft := range []*jsonschema.Draft{jsonschema.Draft2020, jsonschema.Draft4} {
		compiler := jsonschema.NewCompiler()
		compiler.DefaultDraft(draft)
		compiler.UseLoader(noLoader{})
		compiler.UseRegexpEngine(lenientRegexp)
		if compiler.AddResource(name, document) != nil {
			continue
		}
		if compiled, err := compiler.Compile(name); err == nil {
			return compiled, nil
		}
	}
	return nil, nil //nolint:nilnil // a schema that cannot be checked is no mistake
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
