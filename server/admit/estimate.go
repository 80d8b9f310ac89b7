package admit

import (
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// Weights of characters in thousandths of a token. They come from counting samples with two public tokenizers
// (testdata/tokens.jsonl) and lean to the high side, since the figure stands for money.
const (
	weightLetter  = 265 // ASCII letters and spaces: four to a token
	weightBuried  = 720 // letters deep in a run that is no word: keys, hashes, base64
	weightDigit   = 650
	weightPunct   = 420
	weightControl = 400 // line breaks and tabs
	weightLatin   = 600 // accented Latin letters, Greek
	weightSlavic  = 420
	weightAbjad   = 520 // Arabic, Hebrew
	weightIndic   = 550
	weightIdeo    = 1000 // Chinese, Japanese, Korean
	weightOther   = 1600 // emoji and rare scripts

	// wordLength is where a run of letters stops being a word.
	wordLength = 16
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
)

// Counter estimates the tokens of text that comes in pieces. The zero value is ready.
type Counter struct {
	milli int64
	run   int // of ASCII letters
}

// Add counts a piece of text.
func (c *Counter) Add(text string) {
	for i := 0; i < len(text); {
		b := text[i]
		if b < utf8.RuneSelf {
			c.ascii(b)
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		c.run = 0
		c.milli += weightOf(r)
		i += size
	}
}

func (c *Counter) ascii(b byte) {
	letter := b|0x20 >= 'a' && b|0x20 <= 'z'
	if !letter && (b < '0' || b > '9') {
		c.run = 0
	} else {
		c.run++
	}
	switch {
	case c.run > wordLength:
		c.milli += weightBuried
	case letter, b == ' ':
		c.milli += weightLetter
	case b >= '0' && b <= '9':
		c.milli += weightDigit
	case b < ' ':
		c.milli += weightControl
	default:
		c.milli += weightPunct
	}
}

func weightOf(r rune) int64 {
	switch {
	case r < 0x0400:
		return weightLatin
	case r < 0x0530:
		return weightSlavic
	case r < 0x0780:
		return weightAbjad
	case r >= 0x0900 && r < 0x0E80:
		return weightIndic
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul), r >= 0x3000 && r < 0x3040, r >= 0xFF00 && r < 0xFFF0:
		return weightIdeo
	}
	return weightOther
}

// Tokens returns the estimate, rounded up.
func (c *Counter) Tokens() int64 { return (c.milli + 999) / 1000 }

// EstimateInput estimates the input tokens of a request, without a tokenizer.
func EstimateInput(req *ktmsv1.GenerateTextRequest) int64 {
	var text Counter
	var flat int64
	for _, s := range []string{req.GetBaseSystemInstruction(), req.GetRequestInstruction(), req.GetResponseSchemaJson()} {
		text.Add(s)
	}
	if s := req.GetResponseSchema(); s != nil {
		flat += int64(proto.Size(s)) / 3
	}
	for _, m := range req.GetMessages() {
		flat += perMessage
		for _, s := range []string{m.GetText(), m.GetName(), m.GetReasoning(), m.GetRefusal()} {
			text.Add(s)
		}
		for _, p := range m.GetParts() {
			flat += estimatePart(&text, p)
		}
		for _, call := range m.GetToolCalls() {
			flat += perMessage
			text.Add(call.GetName())
			text.Add(call.GetArguments())
		}
	}
	for _, t := range req.GetTools() {
		flat += perTool
		for _, s := range []string{t.GetName(), t.GetDescription(), t.GetParametersJson(), t.GetRawJson()} {
			text.Add(s)
		}
		if s := t.GetParameters(); s != nil {
			flat += int64(proto.Size(s)) / 3
		}
	}
	return text.Tokens() + flat
}

// estimatePart counts the text of a part, and returns what the rest of it costs.
func estimatePart(text *Counter, p *ktmsv1.ContentPart) int64 {
	switch part := p.GetPart().(type) {
	case *ktmsv1.ContentPart_Text:
		text.Add(part.Text)
	case *ktmsv1.ContentPart_Refusal:
		text.Add(part.Refusal)
	case *ktmsv1.ContentPart_RawJson:
		text.Add(part.RawJson)
	case *ktmsv1.ContentPart_Image:
		return perImage
	case *ktmsv1.ContentPart_Audio:
		return int64(len(part.Audio.GetData())>>10+1) * audioPerKiB
	case *ktmsv1.ContentPart_Document:
		size := len(part.Document.GetData()) + 3*len(part.Document.GetUrl())/4
		return int64(size/pageBytes+1) * perPage
	}
	return 0
}

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
	return tokens
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

// AddChunk counts what a chunk of a stream says.
func (c *Counter) AddChunk(chunk *ktmsv1.GenerateTextChunk) {
	c.Add(chunk.GetDelta())
	c.Add(chunk.GetReasoningDelta())
	c.Add(chunk.GetRefusalDelta())
	for _, call := range chunk.GetToolCallChunks() {
		c.Add(call.GetName())
		c.Add(call.GetArguments())
	}
}
