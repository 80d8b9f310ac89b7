package admit

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// Flat figures for what is no text, from the vendors' published rules, on their dear side.
const (
	perMessage = 4 // a turn's frame
	perTool    = 8 // a tool's frame
	perImage   = 1600
	// audioPerKiB: 32 tokens a second at the 16 KiB a second of a common MP3.
	audioPerKiB = 2
	// A PDF page is about 60 KiB and costs its text and its image.
	pageBytes = 60 << 10
	perPage   = 2500
	// A vendor's opaque state holds its reasoning in base64, with a signature.
	opaqueBytes = 4
)

// EstimateInput estimates the input tokens of a request, without a tokenizer. It counts all that may reach a model, also
// what travels in members that nobody knows: a prompt that is not counted is a way around every limit.
func EstimateInput(req *ktmsv1.GenerateTextRequest) int64 {
	var text Counter
	text.add(req.GetBaseSystemInstruction(), req.GetRequestInstruction(), req.GetResponseSchemaJson(),
		req.GetResponseSchemaName(), req.GetResponseSchemaDescription(), req.GetExtraJson(),
		req.GetToolChoice().GetRawJson(), req.GetToolChoice().GetFunctionName())
	flat := structTokens(req.GetResponseSchema())
	for _, m := range req.GetMessages() {
		flat += perMessage + thoughtTokens(m) + text.addMembers(m.GetExtraJson())
		text.add(m.GetText(), m.GetName(), m.GetRefusal(), m.GetToolCallId())
		for _, p := range m.GetParts() {
			flat += estimatePart(&text, p)
		}
		for _, call := range m.GetToolCalls() {
			flat += perMessage
			text.add(call.GetName(), call.GetArguments(), call.GetExtraJson())
		}
	}
	for _, t := range req.GetTools() {
		flat += perTool + structTokens(t.GetParameters())
		text.add(t.GetName(), t.GetDescription(), t.GetParametersJson(), t.GetRawJson(), t.GetExtraJson())
	}
	return text.Tokens() + flat
}

func (c *Counter) add(texts ...string) {
	for _, s := range texts {
		c.Add(s)
	}
}

// structTokens is what a schema costs that comes as a message.
func structTokens(s *structpb.Struct) int64 {
	if s == nil {
		return 0
	}
	return int64(proto.Size(s)) / 3
}

// estimatePart counts the text of a part, and returns what the rest of it costs.
func estimatePart(text *Counter, p *ktmsv1.ContentPart) int64 {
	text.Add(p.GetExtraJson())
	switch part := p.GetPart().(type) {
	case *ktmsv1.ContentPart_Text:
		text.Add(part.Text)
	case *ktmsv1.ContentPart_Refusal:
		text.Add(part.Refusal)
	case *ktmsv1.ContentPart_RawJson:
		return estimateRaw(text, part.RawJson)
	case *ktmsv1.ContentPart_Image:
		return perImage
	case *ktmsv1.ContentPart_Audio:
		return soundTokens(len(part.Audio.GetData()))
	case *ktmsv1.ContentPart_Document:
		text.Add(part.Document.GetFilename())
		return estimateDocument(text, part.Document)
	case *ktmsv1.ContentPart_Embedding:
		return int64(len(part.Embedding.GetVector()))
	}
	return 0
}

// estimateRaw is estimatePart for a part that travels as it came. Only what a vendor takes for an image, a sound or a
// document is no text; everything beside it is.
func estimateRaw(text *Counter, raw string) int64 {
	members, err := openaiapi.ParseMembers([]byte(raw))
	if err != nil {
		text.Add(raw)
		return 0
	}
	var kind string
	_ = json.Unmarshal(members.Get("type"), &kind) // no type is text
	media := members.Get(kind)
	var flat int64
	switch kind {
	case "image_url":
		flat = perImage
	case "input_audio", "audio_url", "video_url":
		flat = soundTokens(3 * len(media) / 4)
	case "file":
		if bytes.Contains(media, []byte(pdf)) {
			flat = documentTokens(3 * len(media) / 4)
		} else {
			media = nil // a document of text is text, and costs a little more while it is encoded
		}
	default:
		media = nil
	}
	text.milli += weightPunct * int64(len(members)) // the frame
	for _, m := range members {
		if media == nil || m.Name != kind {
			text.add(m.Name, string(m.Value))
		}
	}
	return flat
}

// soundTokens is what a sound costs, or a film.
func soundTokens(size int) int64 { return int64(size>>10+1) * audioPerKiB }

// pdf is the media type of the one kind of document that is paid for by the page.
const pdf = "application/pdf"

// estimateDocument counts a document of text as what it says, and returns what the pages of any other cost.
func estimateDocument(text *Counter, d *ktmsv1.DocumentPart) int64 {
	content, kind := d.GetData(), d.GetMimeType()
	if header, encoded, found := strings.Cut(d.GetUrl(), ","); found && strings.HasPrefix(header, "data:") {
		if kind == "" {
			kind = strings.TrimPrefix(header, "data:")
		}
		content = []byte(encoded)
		if plain, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			content = plain
		}
	}
	if len(content) == 0 || strings.HasPrefix(kind, pdf) || bytes.HasPrefix(content, []byte("%PDF")) {
		return documentTokens(len(content))
	}
	text.Add(string(content))
	return 0
}

// thoughtTokens is what an assistant's reasoning costs on its way back. The opaque state holds the same thoughts as the
// text.
func thoughtTokens(m *ktmsv1.Message) int64 {
	var said Counter
	said.Add(m.GetReasoning())
	return max(said.Tokens(), int64(len(m.GetOpaque()))/opaqueBytes)
}

// encodedMedia is how long a run of base64 is that stands for a picture or a sound. Answers hold them in members of the
// message, and callers send the message back as it came.
const encodedMedia = 1024

// addMembers counts the members of a message that nobody knows. What is encoded media in them is no text: it returns what
// that costs.
func (c *Counter) addMembers(text string) (flat int64) {
	from := 0 // of what is not counted yet
	run := 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) && isBase64(text[i]) {
			run++
			continue
		}
		if run >= encodedMedia {
			c.Add(text[from : i-run])
			flat += perImage + soundTokens(3*run/4)
			from = i
		}
		run = 0
	}
	c.Add(text[from:])
	return flat
}

func isBase64(b byte) bool {
	return b|0x20 >= 'a' && b|0x20 <= 'z' || b >= '0' && b <= '9' || b == '+' || b == '/' || b == '='
}

func documentTokens(size int) int64 { return int64(size/pageBytes+1) * perPage }

// EstimateEmbeddings estimates the input tokens of a call for embeddings.
func EstimateEmbeddings(req *ktmsv1.GetEmbeddingsRequest) int64 {
	var tokens int64
	for _, input := range req.GetInputs() {
		var text Counter
		text.Add(input)
		tokens += text.Tokens()
	}
	for _, input := range req.GetTokenInputs() {
		tokens += int64(len(input.GetTokens()))
	}
	var further Counter
	further.Add(req.GetExtraJson())
	return tokens + further.Tokens()
}

// EstimateAnswer estimates the output tokens of an answer.
func EstimateAnswer(r *ktmsv1.GenerateTextResponse) int64 {
	var text Counter
	for _, c := range r.GetChoices() {
		text.add(c.GetText(), c.GetReasoning(), c.GetRefusal())
		for _, call := range c.GetToolCalls() {
			text.add(call.GetName(), call.GetArguments())
		}
	}
	return text.Tokens()
}
