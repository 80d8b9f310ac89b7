package openai

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

var roles = map[ktmsv1.MessageRole]string{
	ktmsv1.MessageRole_MESSAGE_ROLE_USER:      "user",
	ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT: "assistant",
	ktmsv1.MessageRole_MESSAGE_ROLE_TOOL:      "tool",
	ktmsv1.MessageRole_MESSAGE_ROLE_SYSTEM:    "system",
	ktmsv1.MessageRole_MESSAGE_ROLE_DEVELOPER: "developer",
}

// messages writes the two instructions as one leading system message and the conversation as it stands.
func (e *encoder) messages() {
	e.out.Messages = make([]openaiapi.Message, 0, len(e.req.GetMessages())+1)
	var instructions []string
	for _, text := range []string{e.req.GetBaseSystemInstruction(), e.req.GetRequestInstruction(), e.schemaInWords()} {
		if text != "" {
			instructions = append(instructions, text)
		}
	}
	if instructions != nil {
		e.out.Messages = append(e.out.Messages,
			openaiapi.Message{Role: "system", Content: openaiapi.TextContent(strings.Join(instructions, "\n\n"))})
	}
	for i, m := range e.req.GetMessages() {
		e.out.Messages = append(e.out.Messages, e.message(fmt.Sprintf("messages[%d]", i), m))
	}
}

func (e *encoder) message(path string, m *ktmsv1.Message) openaiapi.Message {
	role, known := roles[m.GetRole()]
	if !known {
		e.Wrong(path+".role", "is missing")
	}
	if role == "developer" && e.noDeveloper {
		role = "system"
	}
	out := openaiapi.Message{Role: role, Refusal: m.GetRefusal(), Content: openaiapi.TextContent(m.GetText())}
	if role == "tool" || e.Carries(vendors.MessageName, m.GetName() != "") {
		out.Name = m.GetName()
	}
	if e.noRefusals {
		out.Refusal = ""
	}
	if id := m.GetToolCallId(); id != "" {
		out.ToolCallID = e.toolID(id)
	}
	switch {
	case len(m.GetParts()) > 0:
		out.Content = openaiapi.PartsContent(make([]openaiapi.Part, 0, len(m.GetParts())))
		for i, p := range m.GetParts() {
			out.Content.Parts = append(out.Content.Parts, e.part(fmt.Sprintf("%s.parts[%d]", path, i), p))
		}
		if e.noRefusals && m.GetRefusal() != "" {
			out.Content.Parts = append(out.Content.Parts, openaiapi.Part{Type: "text", Text: m.GetRefusal()})
		}
	case e.noRefusals && m.GetRefusal() != "":
		out.Content = openaiapi.TextContent(strings.TrimSpace(m.GetText() + "\n" + m.GetRefusal()))
	case role == "assistant" && m.GetText() == "" && (len(m.GetToolCalls()) > 0 || m.GetRefusal() != ""):
		out.Content = openaiapi.NullContent()
	}
	for i, c := range m.GetToolCalls() {
		out.ToolCalls = append(out.ToolCalls, e.toolCall(fmt.Sprintf("%s.tool_calls[%d]", path, i), c))
	}
	if m.GetReasoning() != "" {
		e.reasoningOf(m, &out)
	}
	if m.GetExtraJson() != "" {
		extra := e.without(e.object(path+".extra_json", m.GetExtraJson()), out.AppendJSON(nil))
		for _, member := range extra {
			if e.messageExtras != nil && !slices.Contains(e.messageExtras, member.Name) {
				e.Drop(member.Name)
				continue
			}
			out.Extra = append(out.Extra, member)
		}
	}
	return out
}

// reasoningOf sends earlier reasoning back to vendors that have a place for it. Opaque state (Message.opaque) belongs
// to other dialects; this one has none.
func (e *encoder) reasoningOf(m *ktmsv1.Message, out *openaiapi.Message) {
	if !e.Carries(vendors.MessageReasoning, true) {
		return
	}
	for _, member := range e.reasoning {
		if member == "reasoning" {
			out.Reasoning = m.GetReasoning()
		} else {
			out.ReasoningContent = m.GetReasoning()
		}
	}
}

func (e *encoder) part(path string, p *ktmsv1.ContentPart) openaiapi.Part {
	var out openaiapi.Part
	switch part := p.GetPart().(type) {
	case *ktmsv1.ContentPart_Text:
		out = openaiapi.Part{Type: "text", Text: part.Text}
	case *ktmsv1.ContentPart_Refusal:
		out = openaiapi.Part{Type: "refusal", Refusal: part.Refusal}
		if e.noRefusals {
			out = openaiapi.Part{Type: "text", Text: part.Refusal}
		}
	case *ktmsv1.ContentPart_Image:
		image := part.Image
		url := image.GetUrl()
		if url == "" {
			url = dataURL(image.GetMimeType(), image.GetData())
		}
		out = openaiapi.Part{Type: "image_url", ImageURL: &openaiapi.ImageURL{URL: url, Detail: image.GetDetail()}}
	case *ktmsv1.ContentPart_Audio:
		out = openaiapi.Part{Type: "input_audio", InputAudio: &openaiapi.InputAudio{
			Data: base64.StdEncoding.EncodeToString(part.Audio.GetData()), Format: audioFormat(part.Audio)}}
	case *ktmsv1.ContentPart_Document:
		out = openaiapi.Part{Type: "file", File: e.document(path, part.Document)}
	case *ktmsv1.ContentPart_RawJson:
		return openaiapi.Part{Raw: e.rawObject(path+".raw_json", part.RawJson)}
	case *ktmsv1.ContentPart_Embedding:
		if !e.table.Carries(vendors.PartEmbedding) {
			e.Refuse(path, "it takes no vectors")
		}
		return openaiapi.Part{Type: "text"}
	default:
		e.Wrong(path, "is empty")
		return openaiapi.Part{Type: "text"}
	}
	if p.GetExtraJson() != "" && e.Failed() == nil {
		content := openaiapi.Message{Content: openaiapi.PartsContent([]openaiapi.Part{out})}
		written := content.AppendJSON(nil)
		written = written[len(`{"content":[`) : len(written)-len(`]}`)]
		out.Extra = e.taken(vendors.PartExtra, e.without(e.object(path+".extra_json", p.GetExtraJson()), written))
	}
	return out
}

func (e *encoder) document(path string, d *ktmsv1.DocumentPart) *openaiapi.File {
	out := &openaiapi.File{Filename: d.GetFilename()}
	switch source := d.GetSource().(type) {
	case *ktmsv1.DocumentPart_FileId:
		out.FileID = source.FileId
		return out
	case *ktmsv1.DocumentPart_Url:
		if !strings.HasPrefix(source.Url, "data:") {
			e.Refuse(path+".document.url", "it takes documents as bytes, as data: URLs or by file id")
		}
		out.FileData = source.Url
	default:
		out.FileData = dataURL(d.GetMimeType(), d.GetData())
	}
	if out.Filename == "" { // the API wants one beside data
		out.Filename = "document"
		if strings.HasPrefix(out.FileData, "data:application/pdf") {
			out.Filename = "document.pdf"
		}
	}
	return out
}

// dataURL writes bytes as a data: URL; a media type that is not given is told from the bytes.
func dataURL(mediaType string, data []byte) string {
	if mediaType == "" {
		mediaType, _, _ = strings.Cut(http.DetectContentType(data), ";")
	}
	prefix := "data:" + mediaType + ";base64,"
	out := make([]byte, len(prefix), len(prefix)+base64.StdEncoding.EncodedLen(len(data)))
	copy(out, prefix)
	return string(base64.StdEncoding.AppendEncode(out, data))
}

func audioFormat(a *ktmsv1.AudioPart) string {
	if a.GetFormat() == "" && http.DetectContentType(a.GetData()) == "audio/mpeg" {
		return "mp3"
	}
	if a.GetFormat() == "" {
		return "wav"
	}
	return a.GetFormat()
}

func (e *encoder) toolCall(path string, c *ktmsv1.ToolCall) openaiapi.ToolCall {
	out := openaiapi.ToolCall{ID: e.toolID(c.GetId()), Type: "function"}
	if c.GetType() == "custom" {
		out.Type, out.Custom = "custom", &openaiapi.CustomCall{Name: c.GetName(), Input: c.GetArguments()}
	} else {
		out.Function = &openaiapi.FunctionCall{Name: c.GetName(), Arguments: c.GetArguments()}
	}
	if c.GetExtraJson() != "" {
		extra := e.without(e.object(path+".extra_json", c.GetExtraJson()), []byte("{}"), "index", "id", "type", "function", "custom")
		out.Extra = e.taken(vendors.ToolCallExtra, extra)
	}
	return out
}

const (
	shortIDLength   = 9
	shortIDAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
)

// toolID rewrites an id where the vendor wants short ones, or this one is longer than it takes. The same id gives the same short one, so that a call and its
// result stay together without anything to remember.
func (e *encoder) toolID(id string) string {
	if !e.shortToolIDs && len(id) <= maxToolID || isShortID(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	short := make([]byte, shortIDLength)
	for i := range short {
		short[i] = shortIDAlphabet[int(sum[i])%len(shortIDAlphabet)]
	}
	return string(short)
}

func isShortID(id string) bool {
	return len(id) == shortIDLength && strings.Trim(id, shortIDAlphabet) == ""
}
