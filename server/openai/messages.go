package openai

import (
	"encoding/base64"
	"fmt"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

var roles = map[string]ktmsv1.MessageRole{
	"user": ktmsv1.MessageRole_MESSAGE_ROLE_USER, "assistant": ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT,
	"tool": ktmsv1.MessageRole_MESSAGE_ROLE_TOOL, "system": ktmsv1.MessageRole_MESSAGE_ROLE_SYSTEM,
	"developer": ktmsv1.MessageRole_MESSAGE_ROLE_DEVELOPER,
}

// opaqueMember carries a vendor's opaque state through this door, in both directions.
const opaqueMember = "ktms_opaque"

// messages translates the conversation. Instructions stay where they stand: each dialect puts them where its vendor
// wants them.
func (d *decoding) messages(req *ktmsv1.GenerateTextRequest, wire []openaiapi.Message) {
	if len(wire) == 0 {
		d.wrong("messages", "must hold at least one message")
	}
	for i := range wire {
		m := &wire[i]
		path := fmt.Sprintf("messages[%d]", i)
		role, known := roles[m.Role]
		if !known {
			d.wrong(path+".role", "expected system, developer, user, assistant or tool, got %q", m.Role)
			continue
		}
		out := &ktmsv1.Message{Role: role, Name: m.Name, ToolCallId: m.ToolCallID, Refusal: m.Refusal, Reasoning: m.ReasoningContent}
		if out.Reasoning == "" {
			out.Reasoning = m.Reasoning
		}
		switch m.Content.Kind {
		case openaiapi.ContentText:
			out.Text = m.Content.Text
		case openaiapi.ContentParts:
			for j := range m.Content.Parts {
				out.Parts = append(out.Parts, d.part(fmt.Sprintf("%s.content[%d]", path, j), &m.Content.Parts[j]))
			}
		}
		for j := range m.ToolCalls {
			out.ToolCalls = append(out.ToolCalls, d.toolCall(fmt.Sprintf("%s.tool_calls[%d]", path, j), &m.ToolCalls[j]))
		}
		extra := said(m.Extra, "name", "reasoning_content", "reasoning", "refusal")
		if list := extra.Get("annotations"); string(list) == "[]" {
			extra.Take("annotations") // as the official SDKs write an answer out
		}
		out.Opaque = d.textAt(path, &extra, opaqueMember)
		out.ExtraJson = extra.JSON()
		req.Messages = append(req.Messages, out)
	}
}

// part translates one part; what ktms.v1 cannot hold travels raw.
func (d *decoding) part(path string, p *openaiapi.Part) *ktmsv1.ContentPart {
	raw := func() *ktmsv1.ContentPart {
		return &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_RawJson{RawJson: p.JSON()}}
	}
	out := &ktmsv1.ContentPart{ExtraJson: p.Extra.JSON()}
	switch {
	case p.Raw != nil:
		return raw()
	case p.ImageURL != nil:
		if p.ImageURL.Bare || len(said(p.ImageURL.Extra, "detail")) > 0 {
			return raw()
		}
		out.Part = &ktmsv1.ContentPart_Image{Image: &ktmsv1.ImagePart{
			Source: &ktmsv1.ImagePart_Url{Url: p.ImageURL.URL}, Detail: p.ImageURL.Detail}}
	case p.InputAudio != nil:
		if len(p.InputAudio.Extra) > 0 {
			return raw()
		}
		data, err := base64.StdEncoding.DecodeString(p.InputAudio.Data)
		if err != nil {
			d.wrong(path+".input_audio.data", "is not base64")
		}
		out.Part = &ktmsv1.ContentPart_Audio{Audio: &ktmsv1.AudioPart{Data: data, Format: p.InputAudio.Format}}
	case p.File != nil:
		document, ok := d.file(path, p.File)
		if !ok {
			return raw()
		}
		out.Part = &ktmsv1.ContentPart_Document{Document: document}
	case p.Type == "refusal":
		out.Part = &ktmsv1.ContentPart_Refusal{Refusal: p.Refusal}
	default:
		out.Part = &ktmsv1.ContentPart_Text{Text: p.Text}
	}
	return out
}

func (d *decoding) file(path string, f *openaiapi.File) (*ktmsv1.DocumentPart, bool) {
	if len(f.Extra) > 0 || (f.FileID != "" && f.FileData != "") {
		return nil, false
	}
	document := &ktmsv1.DocumentPart{Filename: f.Filename}
	switch {
	case f.FileID != "":
		document.Source = &ktmsv1.DocumentPart_FileId{FileId: f.FileID}
	case strings.HasPrefix(f.FileData, "data:"), strings.HasPrefix(f.FileData, "https://"):
		document.Source = &ktmsv1.DocumentPart_Url{Url: f.FileData}
	default:
		data, err := base64.StdEncoding.DecodeString(f.FileData)
		if err != nil {
			d.wrong(path+".file.file_data", "is neither a data URL nor base64")
		}
		document.Source = &ktmsv1.DocumentPart_Data{Data: data}
	}
	return document, true
}

func (d *decoding) toolCall(path string, c *openaiapi.ToolCall) *ktmsv1.ToolCall {
	out := &ktmsv1.ToolCall{Id: c.ID, Type: c.Type, ExtraJson: c.Extra.JSON()}
	switch {
	case c.Function != nil:
		out.Name, out.Arguments = c.Function.Name, c.Function.Arguments
	case c.Custom != nil:
		out.Name, out.Arguments, out.Type = c.Custom.Name, c.Custom.Input, customType
	default:
		d.wrong(path, "needs a function or a custom member")
	}
	return out
}
