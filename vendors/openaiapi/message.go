package openaiapi

// Message is one turn of a conversation, or what a choice answers. In a stream, a delta is a message in which every
// member is the next piece.
type Message struct {
	Role             string
	Content          Content
	Name             string
	ToolCalls        []ToolCall
	ToolCallID       string
	Refusal          string
	ReasoningContent string
	// Reasoning is what Groq, vLLM and Ollama call ReasoningContent.
	Reasoning string
	Extra     Members
}

// Delta is what a chunk adds to a choice.
type Delta = Message

// ContentKind is the shape of a content. A content that is null differs from one that is not there.
type ContentKind uint8

// The shapes of a content.
const (
	ContentAbsent ContentKind = iota
	ContentNull
	ContentText
	ContentParts
)

// Content is a string, null or an array of parts.
type Content struct {
	Kind  ContentKind
	Text  string
	Parts []Part
}

// TextContent is a content that is a string.
func TextContent(text string) Content { return Content{Kind: ContentText, Text: text} }

// PartsContent is a content that is an array of parts.
func PartsContent(parts []Part) Content { return Content{Kind: ContentParts, Parts: parts} }

// NullContent is the content null.
func NullContent() Content { return Content{Kind: ContentNull} }

// ToolCall is a call that the model asks for.
type ToolCall struct {
	// Index is the call's place in the answer; streams need it, and some servers send it outside of streams.
	Index    *int64
	ID       string
	Type     string
	Function *FunctionCall
	Custom   *CustomCall
	Extra    Members
}

// ToolCallDelta is the next piece of a call.
type ToolCallDelta = ToolCall

// FunctionCall names a function and its arguments, JSON text.
type FunctionCall struct {
	Name      string
	Arguments string
	Extra     Members
}

// CustomCall names a custom tool and its input, free text.
type CustomCall struct {
	Name  string
	Input string
	Extra Members
}

// message reads the members of the object that the decoder has entered.
func (d *decoder) message(m *Message) {
	for d.member() {
		switch string(d.name()) {
		case "role":
			d.role(m)
		case "content":
			d.content(m)
		case "name":
			d.str(&m.Name, &m.Extra)
		case "tool_calls":
			m.ToolCalls = nil
			start := d.pos
			if d.list("an array of tool calls", &m.Extra) {
				for d.element() {
					if d.elementObject() {
						m.ToolCalls = append(m.ToolCalls, ToolCall{})
						d.toolCall(&m.ToolCalls[len(m.ToolCalls)-1])
					}
				}
				if m.ToolCalls == nil && !d.lenient {
					d.keepFrom(start, &m.Extra)
				}
			}
		case "tool_call_id":
			d.mustStr(&m.ToolCallID, &m.Extra)
		case "refusal":
			d.str(&m.Refusal, &m.Extra)
		case "reasoning_content":
			d.str(&m.ReasoningContent, &m.Extra)
		case "reasoning":
			d.str(&m.Reasoning, &m.Extra)
		default:
			d.keep(&m.Extra)
		}
	}
}

// role spares the string of the commonest ones.
func (d *decoder) role(m *Message) {
	if d.kind() != '"' {
		d.mustStr(&m.Role, &m.Extra)
		return
	}
	switch q := d.quoted(); string(q) {
	case "assistant":
		m.Role = "assistant"
	case "user":
		m.Role = "user"
	default:
		m.Role = unquote(q)
	}
}

// DecodeContent reads a content that stands elsewhere than in a message, leniently; what is none is absent.
func DecodeContent(data []byte) Content {
	d := newDecoder(data, true)
	var m Message
	if k := d.kind(); k == '"' || k == '[' {
		d.content(&m)
	}
	if d.end() != nil {
		return Content{}
	}
	return m.Content
}

func (d *decoder) content(m *Message) {
	switch d.kind() {
	case '"':
		m.Content = TextContent(unquote(d.quoted()))
	case 'n':
		d.literal("null")
		m.Content = NullContent()
	case '[':
		d.enter()
		parts := []Part{}
		for d.element() {
			if d.kind() == '"' && d.lenient { // a list of plain strings
				if !d.build() {
					break
				}
				parts = append(parts, Part{Type: "text", Text: unquote(d.quoted())})
				continue
			}
			start := d.pos
			if d.elementObject() {
				parts = append(parts, Part{})
				d.part(&parts[len(parts)-1], start)
			}
		}
		m.Content = PartsContent(parts)
	default:
		d.wrong("a string or an array of parts", &m.Extra)
	}
}

func (d *decoder) toolCall(c *ToolCall) {
	for d.member() {
		switch string(d.name()) {
		case "index":
			d.integer(&c.Index, &c.Extra)
		case "id":
			d.mustStr(&c.ID, &c.Extra)
		case "type":
			d.str(&c.Type, &c.Extra)
		case "function":
			if d.object("an object", &c.Extra) {
				c.Function = &FunctionCall{}
				for d.member() {
					switch string(d.name()) {
					case "name":
						d.mustStr(&c.Function.Name, &c.Function.Extra)
					case "arguments":
						d.arguments(&c.Function.Arguments, &c.Function.Extra)
					default:
						d.keep(&c.Function.Extra)
					}
				}
			}
		case "custom":
			if d.object("", &c.Extra) {
				c.Custom = &CustomCall{}
				for d.member() {
					switch string(d.name()) {
					case "name":
						d.mustStr(&c.Custom.Name, &c.Custom.Extra)
					case "input":
						d.mustStr(&c.Custom.Input, &c.Custom.Extra)
					default:
						d.keep(&c.Custom.Extra)
					}
				}
			}
		default:
			d.keep(&c.Extra)
		}
	}
}

// arguments are JSON text in a string; some servers answer with the object itself.
func (d *decoder) arguments(field *string, extra *Members) {
	if d.lenient && d.kind() == '{' {
		*field = string(d.raw())
		return
	}
	d.mustStr(field, extra)
}
