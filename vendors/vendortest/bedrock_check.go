package vendortest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// bedrockRequest reads a request as the vendor's validation does. The first complaint counts.
type bedrockRequest struct {
	model  string
	wrong  string
	claude bool
	// version is that of a Claude model: 4.6 is 406.
	version   int
	points    int
	documents []string
	toolUses  map[string]bool
	usesTools bool
}

var (
	bedrockPath = regexp.MustCompile(`^(?:/[^/]+)?/model/(.+)/converse(-stream)?$`)
	bedrockSign = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=[A-Za-z0-9_]+/\d{8}/([a-z0-9-]+)/bedrock/aws4_request, ` +
		`SignedHeaders=([a-z0-9;-]+), Signature=[0-9a-f]{64}$`)
	bedrockID       = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	bedrockDocument = regexp.MustCompile(`^[a-zA-Z0-9()\[\]-]+(?: [a-zA-Z0-9()\[\]-]+)*$`)
	bedrockVersion  = regexp.MustCompile(`claude-(?:[a-z]+-)?(\d)(?:-(\d))?(?:-|:|$)`)
)

func checkBedrock(c *Call, region string) string {
	path := bedrockPath.FindStringSubmatch(c.Path)
	if path == nil || c.Query != "" {
		return "there is no operation at " + c.Path + "?" + c.Query
	}
	signature := bedrockSign.FindStringSubmatch(c.Header.Get("Authorization"))
	switch {
	case signature == nil:
		return "the Authorization is not a signature: " + c.Header.Get("Authorization")
	case signature[1] != region:
		return "the credential should be scoped to " + region
	}
	for _, name := range strings.Split(signature[2], ";") {
		if name != "host" && name != "content-length" && c.Header.Get(name) == "" {
			return "the signed header " + name + " is missing"
		}
	}
	for _, name := range []string{"host", "x-amz-date", "content-type"} {
		if !slices.Contains(strings.Split(signature[2], ";"), name) {
			return name + " is not signed"
		}
	}
	if c.Header.Get("Content-Type") != "application/json" {
		return "the content type is " + c.Header.Get("Content-Type")
	}
	r := &bedrockRequest{model: path[1], claude: strings.Contains(path[1], "anthropic."), toolUses: map[string]bool{}}
	if v := bedrockVersion.FindStringSubmatch(r.model); v != nil {
		major, _ := strconv.Atoi(v[1])
		minor, _ := strconv.Atoi(v[2])
		r.version = major*100 + minor
	}
	d := json.NewDecoder(bytes.NewReader(c.Body))
	d.UseNumber()
	var body any
	if err := d.Decode(&body); err != nil || d.More() {
		return "the body is not JSON"
	}
	r.request(body)
	return r.wrong
}

func (r *bedrockRequest) no(path, format string, args ...any) {
	if r.wrong == "" {
		r.wrong = path + ": " + fmt.Sprintf(format, args...)
	}
}

type check func(path string, v any)

// object checks an object's members; a name with a star in front is required.
func (r *bedrockRequest) object(members map[string]check) check {
	return func(path string, v any) {
		o, ok := v.(map[string]any)
		if !ok {
			r.no(path, "expected an object")
			return
		}
		for name := range members {
			if bare, required := strings.CutPrefix(name, "*"); required && o[bare] == nil {
				r.no(path, "%s is required", bare)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(o)) {
			c := members[name]
			if c == nil {
				c = members["*"+name]
			}
			if c == nil {
				r.no(path, "unknown member %s", name)
				continue
			}
			c(path+"."+name, o[name])
		}
	}
}

// union is an object with exactly one member.
func (r *bedrockRequest) union(members map[string]check) check {
	inner := r.object(members)
	return func(path string, v any) {
		if o, ok := v.(map[string]any); ok && len(o) != 1 {
			r.no(path, "expected exactly one member, got %d", len(o))
		}
		inner(path, v)
	}
}

func (r *bedrockRequest) list(least int, item check) check {
	return func(path string, v any) {
		items, ok := v.([]any)
		if !ok || len(items) < least {
			r.no(path, "expected at least %d items", least)
			return
		}
		for i, one := range items {
			item(fmt.Sprintf("%s[%d]", path, i), one)
		}
	}
}

func (r *bedrockRequest) number(least, most float64, whole bool) check {
	return func(path string, v any) {
		n, ok := v.(json.Number)
		f, err := strconv.ParseFloat(string(n), 64)
		if !ok || err != nil || f < least || f > most || whole && strings.ContainsAny(string(n), ".eE") {
			r.no(path, "%v is not between %v and %v", v, least, most)
		}
		if len(n) > 12 {
			r.no(path, "%v has digits that nobody wrote", v)
		}
	}
}

func (r *bedrockRequest) text(pattern *regexp.Regexp) check {
	return func(path string, v any) {
		s, ok := v.(string)
		if !ok || s == "" || pattern != nil && !pattern.MatchString(s) {
			r.no(path, "%q does not do", v)
		}
	}
}

func (r *bedrockRequest) words(path string, v any) {
	if s, ok := v.(string); !ok || strings.TrimSpace(s) == "" {
		r.no(path, "text content blocks must be non-empty")
	}
}

func (r *bedrockRequest) flag(path string, v any) {
	if _, ok := v.(bool); !ok {
		r.no(path, "expected a boolean")
	}
}

func (r *bedrockRequest) enum(values ...string) check {
	return func(path string, v any) {
		if s, ok := v.(string); !ok || !slices.Contains(values, s) {
			r.no(path, "%v is none of %v", v, values)
		}
	}
}

func (r *bedrockRequest) bytes(path string, v any) {
	s, _ := v.(string)
	if data, err := base64.StdEncoding.DecodeString(s); err != nil || len(data) == 0 {
		r.no(path, "expected bytes in base64")
	}
}

func (r *bedrockRequest) source() check {
	return r.union(map[string]check{"bytes": r.bytes, "s3Location": r.object(map[string]check{
		"*uri": r.text(regexp.MustCompile(`^s3://[a-z0-9][a-z0-9.-]+/.+`)), "bucketOwner": r.text(nil)})})
}

func (r *bedrockRequest) point(path string, v any) {
	r.object(map[string]check{"*type": r.enum("default"), "ttl": r.enum("5m", "1h")})(path, v)
	if !r.claude {
		r.no(path, "the model has no prompt cache points")
	}
	if r.points++; r.points > 4 {
		r.no(path, "more than four cache points")
	}
	if strings.HasSuffix(path, "[0].cachePoint") {
		r.no(path, "a cache point follows nothing")
	}
}

func (r *bedrockRequest) request(body any) {
	r.object(map[string]check{
		"*messages": r.messages,
		"system":    r.list(1, r.union(map[string]check{"text": r.words, "cachePoint": r.point})),
		"inferenceConfig": r.object(map[string]check{
			"maxTokens": r.number(1, 1<<31-1, true), "temperature": r.number(0, 1, false), "topP": r.number(0, 1, false),
			"stopSequences": r.list(0, r.stop),
		}),
		"toolConfig":                   r.tools,
		"outputConfig":                 r.output,
		"additionalModelRequestFields": r.additional,
		"guardrailConfig": r.object(map[string]check{
			"*guardrailIdentifier": r.text(nil), "*guardrailVersion": r.text(regexp.MustCompile(`^(DRAFT|[1-9]\d*)$`)),
			"trace": r.enum("enabled", "disabled", "enabled_full"), "streamProcessingMode": r.enum("sync", "async"),
		}),
		"serviceTier": r.object(map[string]check{"*type": r.enum("priority", "default", "flex", "reserved")}),
	})("request", body)
	request, _ := body.(map[string]any)
	if r.usesTools && request["toolConfig"] == nil {
		r.no("toolConfig", "must be defined when the conversation has toolUse and toolResult blocks")
	}
	r.sampling(request)
}

func (r *bedrockRequest) stop(path string, v any) {
	if r.claude {
		r.words(path, v)
		return
	}
	r.text(nil)(path, v)
}

func (r *bedrockRequest) sampling(request map[string]any) {
	config, _ := request["inferenceConfig"].(map[string]any)
	temperature, topP := config["temperature"], config["topP"]
	if r.version >= 407 && (temperature != nil && temperature != json.Number("1") || topP != nil && topP != json.Number("1")) {
		r.no("inferenceConfig", "the model takes no sampling parameters")
	}
	additional, _ := request["additionalModelRequestFields"].(map[string]any)
	thinking, _ := additional["thinking"].(map[string]any)
	if kind := thinking["type"]; kind == "enabled" || kind == "adaptive" {
		if temperature != nil && temperature != json.Number("1") || additional["top_k"] != nil {
			r.no("inferenceConfig", "temperature may only be set to 1 when thinking is enabled or in adaptive mode")
		}
		config, _ := request["toolConfig"].(map[string]any)
		if choice, _ := config["toolChoice"].(map[string]any); choice["any"] != nil || choice["tool"] != nil {
			r.no("toolConfig", "thinking may not be enabled when tool_choice forces tool use")
		}
	} else if kind == "disabled" && r.version >= 501 && !strings.Contains(r.model, "haiku") {
		r.no("additionalModelRequestFields", "thinking cannot be disabled")
	}
	if r.version >= 401 && temperature != nil && topP != nil {
		r.no("inferenceConfig", "temperature and top_p cannot both be specified for this model")
	}
}

// additional are the parameters of a family's own.
func (r *bedrockRequest) additional(path string, v any) {
	thinking := r.object(map[string]check{"*type": r.enum("adaptive", "enabled", "disabled", "between_tools"), "budget_tokens": r.number(1024, 1<<31, true), "display": r.text(nil)})
	switch {
	case r.claude && r.version >= 407:
		r.object(map[string]check{"thinking": thinking})(path, v)
	case r.claude:
		r.object(map[string]check{"thinking": thinking, "top_k": r.number(0, 1<<31, true)})(path, v)
		if o, ok := v.(map[string]any); ok && len(o) == 0 {
			r.no(path, "is empty")
		}
	case strings.Contains(r.model, "amazon.nova"):
		r.object(map[string]check{"*inferenceConfig": r.object(map[string]check{"*topK": r.number(0, 1<<31, true)})})(path, v)
	default:
		r.no(path, "the model has no such parameters")
	}
}
