package gemini

import (
	"strconv"
	"strings"
)

// thinking is how a model is told how much to think.
type thinking int

const (
	noThinking     thinking = iota // it does not, or nothing is known about it
	thinkingBudget                 // 2.5: a number of tokens
	thinkingLevel                  // 3 and later: a word
)

// generation is what differs between the models of this API.
type generation struct {
	thinking thinking
	// least and most bound the budget; a least of 0 switches thinking off.
	least, most int64
	// lowest is the level that stands for none and minimal.
	lowest string
	// sampled: temperature, topP, topK and the penalties have an effect.
	sampled bool
	// signed: calls in the history need a thoughtSignature.
	signed bool
	// together: a schema or Google Search may stand beside functions.
	together bool
	// validated: calls can be held to their schemas without being forced.
	validated bool
}

// Levels and budgets of thinking.
const (
	levelMinimal, levelLow, levelMedium, levelHigh = "MINIMAL", "LOW", "MEDIUM", "HIGH"

	// lowBudget and mediumBudget are what Google's own OpenAI-compatible API makes of low and medium.
	lowBudget    = 1024
	mediumBudget = 8192
)

// current is what the newest models are, for aliases that follow them ("gemini-pro-latest") and for no model at all.
const current = 400

// versionOf makes 205 of 2.5 and of 2.5.1: major and minor, which are numbers of their own.
func versionOf(digits string) int {
	major, rest, _ := strings.Cut(digits, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor) // none is 0
	return 100*min(a, 1000) + min(b, 99)
}

// generationOf tells what a model is from its id.
func generationOf(model string) generation {
	_, model = split(strings.ToLower(model))
	name, own := strings.CutPrefix(model, "gemini-")
	version := current
	if digits := name[:len(name)-len(strings.TrimLeft(name, "0123456789."))]; digits != "" {
		version = versionOf(digits)
	}
	switch {
	case !own && model != "":
		// A tuned model or another family: what all take, and nothing that only some understand.
		return generation{sampled: true}
	case version < 205:
		return generation{sampled: true}
	case version < 300:
		return before3(name)
	case version < 400:
		g := generation{thinking: thinkingLevel, lowest: levelLow, sampled: true, signed: true, together: true, validated: true}
		if strings.Contains(name, "flash") {
			g.lowest = levelMinimal
		}
		return g
	}
	return generation{thinking: thinkingLevel, lowest: levelLow, signed: true, together: true, validated: true}
}

// before3 are the models that think by budget. Those for pictures and speech do not think.
func before3(name string) generation {
	g := generation{thinking: thinkingBudget, most: 24576, sampled: true, validated: true}
	switch {
	case strings.Contains(name, "image"), strings.Contains(name, "tts"):
		g.thinking = noThinking
	case strings.Contains(name, "pro"):
		g.least, g.most = 128, 32768
	}
	return g
}

// level is what the model calls an effort; "" is an effort that nobody knows.
func (g *generation) level(effort string) string {
	switch effort {
	case "none", "minimal":
		return g.lowest
	case "low":
		return levelLow
	case "medium":
		return levelMedium
	case "high", "xhigh", "max":
		return levelHigh
	}
	return ""
}

// budget is how many tokens of thinking an effort stands for; known is false for an effort that nobody knows.
func (g *generation) budget(effort string) (tokens int64, known bool) {
	switch effort {
	case "none":
		return g.least, true
	case "minimal", "low":
		return lowBudget, true
	case "medium":
		return mediumBudget, true
	case "high", "xhigh", "max":
		return g.most, true
	}
	return 0, false
}
