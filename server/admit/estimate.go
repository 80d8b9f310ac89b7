package admit

import (
	"encoding/json"

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
		flat += perMessage + int64(len(m.GetOpaque()))/opaqueBytes
		text.add(m.GetText(), m.GetName(), m.GetReasoning(), m.GetRefusal(), m.GetToolCallId(), m.GetExtraJson())
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
		return audioTokens(len(part.Audio.GetData()))
	case *ktmsv1.ContentPart_Document:
		text.Add(part.Document.GetFilename())
		return documentTokens(len(part.Document.GetData()) + 3*len(part.Document.GetUrl())/4)
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
	case "input_audio":
		flat = audioTokens(3 * len(media) / 4)
	case "file":
		flat = documentTokens(3 * len(media) / 4)
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

func audioTokens(bytes int) int64 { return int64(bytes>>10+1) * audioPerKiB }

func documentTokens(bytes int) int64 { return int64(bytes/pageBytes+1) * perPage }

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
		for _, s := range []string{c.GetText(), c.GetReasoning(), c.GetRefusal()} {
			text.Add(s)
		}
		for _, call := range c.GetToolCalls() {
			text.Add(call.GetName())
			text.Add(call.GetArguments())
		}
	}
	return text.Tokens()
}
