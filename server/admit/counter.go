package admit

import (
	"unicode"
	"unicode/utf8"

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
