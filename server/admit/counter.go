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

// class is what the counter needs to know of an ASCII character.
type class struct {
	weight int64
	// run keeps the length of a run of letters and digits, where it is all ones, or ends it, where it is 0.
	run int
}

// classes are looked up for every byte of every prompt, so they are laid out once.
var classes = func() (all [utf8.RuneSelf]class) {
	for b := range all {
		switch {
		case b|0x20 >= 'a' && b|0x20 <= 'z':
			all[b] = class{weightLetter, -1}
		case b >= '0' && b <= '9':
			all[b] = class{weightDigit, -1}
		case b == ' ':
			all[b].weight = weightLetter
		case b < ' ':
			all[b].weight = weightControl
		default:
			all[b].weight = weightPunct
		}
	}
	return all
}()

// Add counts a piece of text.
func (c *Counter) Add(text string) {
	milli, run := c.milli, c.run
	for i := 0; i < len(text); {
		b := text[i]
		if b >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(text[i:])
			milli += weightOf(r)
			run = 0
			i += size
			continue
		}
		found := &classes[b]
		run = (run + 1) & found.run
		if run > wordLength {
			milli += weightBuried
		} else {
			milli += found.weight
		}
		i++
	}
	c.milli, c.run = milli, run
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
	case r == utf8.RuneError, r >= 0x1F000 && r < 0x20000: // no character, and emoji: spared the tables
		return weightOther
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul), r >= 0x3000 && r < 0x3040, r >= 0xFF00 && r < 0xFFF0:
		return weightIdeo
	}
	return weightOther
}

// Tokens returns the estimate, rounded up.
func (c *Counter) Tokens() int64 { return (c.milli + 999) / 1000 }

// AddChunk counts what a chunk of a stream says.
func (c *Counter) AddChunk(chunk *ktmsv1.GenerateTextChunk) {
	c.add(chunk.GetDelta(), chunk.GetReasoningDelta(), chunk.GetRefusalDelta())
	for _, call := range chunk.GetToolCallChunks() {
		c.add(call.GetName(), call.GetArguments())
	}
}
