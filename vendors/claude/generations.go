package claude

import (
	"slices"
	"strconv"
	"strings"
)

// Style is how a model is told to think.
type Style int

const (
	// Never means that the model has no thinking.
	Never Style = iota
	// Budgeted means that thinking is switched on with a number of tokens.
	Budgeted
	// OnRequest means that thinking is switched on, and the effort says how much.
	OnRequest
	// Always means that thinking is on unless it is switched off, and the effort says how much.
	Always
)

// Generation is what the models of one age have in common.
type Generation struct {
	// Since is the first version of the generation, major*100 + minor.
	Since int
	Style Style
	// Disable: thinking may be switched off explicitly.
	Disable bool
	// Efforts: the model knows an effort, and XHigh one between high and max.
	Efforts bool
	XHigh   bool
	// Sampling: temperature, top_p and top_k are taken. Later models refuse all but the defaults.
	Sampling bool
	// OneSampler: temperature or top_p, not both.
	OneSampler bool
	// Forced: tool_choice may demand a call.
	Forced bool
	// Prefill: the conversation may end with the beginning of the answer.
	Prefill bool
	// Schemas: answers and strict tools can be held to a schema.
	Schemas bool
	// MaxOutput is what every model of the generation can write at least; 0 is unknown.
	MaxOutput int64
}

// generations, from the newest to the oldest. Of the models between those that are known, each is taken for the newer
// kind: what the newer one refuses is not sent, and what it lacks is said to be dropped.
var generations = []Generation{
	// The 5.5 family, Fable 5.1, and all that follow.
	{Since: 501, Style: Always, Efforts: true, XHigh: true, Schemas: true, MaxOutput: 64000},
	{Since: 500, Style: Always, Disable: true, Efforts: true, XHigh: true, Forced: true, Schemas: true, MaxOutput: 64000},
	{Since: 407, Style: OnRequest, Disable: true, Efforts: true, XHigh: true, Forced: true, Schemas: true, MaxOutput: 64000},
	{Since: 406, Style: OnRequest, Disable: true, Efforts: true, Sampling: true, OneSampler: true, Forced: true, Schemas: true, MaxOutput: 64000},
	{Since: 401, Style: Budgeted, Disable: true, Sampling: true, OneSampler: true, Forced: true, Prefill: true, Schemas: true, MaxOutput: 32000},
	{Since: 400, Style: Budgeted, Disable: true, Sampling: true, Forced: true, Prefill: true, MaxOutput: 32000},
	{Since: 307, Style: Budgeted, Disable: true, Sampling: true, Forced: true, Prefill: true, MaxOutput: 64000},
	{Since: 0, Style: Never, Sampling: true, Forced: true, Prefill: true, MaxOutput: 4096},
}

// stranger is what a model is taken for that is no Claude: servers that imitate the API know the plain fields, and nobody
// knows that they enforce anything.
var stranger = Generation{Style: Never, Sampling: true, Forced: true}

// GenerationOf reads a model's id, also behind the prefix of a cloud. No id, and a Claude without a version, stand for
// the current models. known is false for a model that is no Claude.
func GenerationOf(model string) (g Generation, known bool) {
	model = strings.ToLower(model)
	if model != "" && !strings.Contains(model, "claude") {
		return stranger, false
	}
	family, version := versionOf(model)
	if version == 0 {
		return generations[0], true
	}
	g = generations[slices.IndexFunc(generations, func(g Generation) bool { return version >= g.Since })]
	switch {
	case family == "haiku" && version == 505:
		g.Disable = true
	case family == "opus" && version == 405:
		g.Efforts = true // ahead of its generation
	}
	return g, true
}

// versionOf reads claude-opus-5-5, claude-sonnet-4-20250514, claude-haiku-4.5, claude-3-7-sonnet-latest and claude-v2:1.
// Numbers of more than two digits are dates, and a number after the version's own counts what a cloud packed.
func versionOf(model string) (family string, version int) {
	_, id, found := strings.Cut(model, "claude-")
	if !found {
		return "", 0
	}
	if end := strings.IndexAny(id, "@:"); end >= 0 {
		id = id[:end]
	}
	var numbers []int
	for part := range strings.FieldsFuncSeq(id, func(r rune) bool { return r == '-' || r == '.' }) {
		digits := part
		if len(numbers) == 0 {
			digits = strings.TrimPrefix(part, "v")
		}
		n, err := strconv.Atoi(digits)
		switch {
		case err != nil && family == "":
			family = part
		case err == nil && n >= 0 && len(digits) <= 2 && len(numbers) < 2:
			numbers = append(numbers, n)
		}
	}
	if len(numbers) == 0 {
		return family, 0
	}
	version = numbers[0] * 100
	if len(numbers) == 2 {
		version += numbers[1]
	}
	return family, version
}

// efforts are the efforts that can be asked for, in the vendor's words.
var efforts = map[string]string{
	"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max",
}

// Effort is an effort in the words of a generation; "" is one that nobody knows, such as none.
func (g Generation) Effort(asked string) string {
	if asked == "xhigh" && !g.XHigh {
		return "high"
	}
	return efforts[asked]
}

// AnswerRoom is what an answer needs beside the thinking. It is also the ceiling of an answer without thinking where
// nobody names one: every model takes this one.
const AnswerRoom = 4096

// budgets are the tokens of thinking for each effort. A tool loop or a proof takes some ten thousand; more rarely helps
// and costs minutes.
var budgets = map[string]int64{"low": 2048, "medium": 8192, "high": 24576, "xhigh": 32768, "max": 32768}

// Budget is how many tokens an effort may think with; 0 for one that nobody knows.
func Budget(effort string) int64 { return budgets[efforts[effort]] }

// Ceiling is the max_tokens that leaves room for an answer and for the thinking of an effort, where neither the request
// nor the catalogue says how much. Thinking counts to max_tokens: with less than this, a model that thinks may end before
// it has said anything. Without an effort it is the room of a model's own choice.
func (g Generation) Ceiling(effort string) int64 {
	budget := int64(0)
	switch {
	case g.Style == Never || effort == "none" && g.Disable:
	case g.Style == Always && Budget(effort) == 0:
		budget = budgets["high"]
	case g.Style != Budgeted && effort == "max":
		budget = g.MaxOutput // it stops at nothing else
	default:
		budget = Budget(g.Effort(effort))
	}
	if g.MaxOutput == 0 {
		return AnswerRoom + budget
	}
	return min(AnswerRoom+budget, g.MaxOutput)
}
