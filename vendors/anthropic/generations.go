package anthropic

import (
	"slices"
	"strconv"
	"strings"
)

// thinkingStyle is how a model is told to think.
type thinkingStyle int

const (
	// never: the model has no thinking.
	never thinkingStyle = iota
	// budgeted: thinking is switched on with a number of tokens.
	budgeted
	// onRequest: thinking is switched on, and the effort says how much.
	onRequest
	// always: thinking is on unless it is switched off, and the effort says how much.
	always
)

// generation is what the models of one age have in common.
type generation struct {
	// since is the first version of the generation, major*100 + minor.
	since int
	style thinkingStyle
	// disable: thinking may be switched off explicitly.
	disable bool
	// xhigh: the model knows an effort between high and max.
	xhigh bool
	// sampling: temperature, top_p and top_k are taken. Later models refuse all but the defaults.
	sampling bool
	// oneSampler: temperature or top_p, not both.
	oneSampler bool
	// forced: tool_choice may demand a call.
	forced bool
	// prefill: the conversation may end with the beginning of the answer.
	prefill bool
	// schemas: answers and strict tools can be held to a schema.
	schemas bool
}

// generations, from the newest to the oldest. Of the models between those that are known, each is taken for the newer
// kind: what the newer one refuses is not sent, and what it lacks is said to be dropped.
var generations = []generation{
	{since: 501, style: always, xhigh: true, schemas: true}, // the 5.5 family, Fable 5.1, and all that follow
	{since: 500, style: always, disable: true, xhigh: true, forced: true, schemas: true},
	{since: 407, style: onRequest, disable: true, xhigh: true, forced: true, schemas: true},
	{since: 406, style: onRequest, disable: true, sampling: true, oneSampler: true, forced: true, schemas: true},
	{since: 401, style: budgeted, disable: true, sampling: true, oneSampler: true, forced: true, prefill: true, schemas: true},
	{since: 400, style: budgeted, disable: true, sampling: true, forced: true, prefill: true},
	{since: 307, style: budgeted, disable: true, sampling: true, forced: true, prefill: true},
	{since: 0, style: never, sampling: true, forced: true, prefill: true},
}

// generationOf reads a model's id. One that names no version stands for the current models.
func generationOf(model string) generation {
	family, version := versionOf(model)
	if version == 0 {
		return generations[0]
	}
	at := slices.IndexFunc(generations, func(g generation) bool { return version >= g.since })
	g := generations[at]
	if family == "haiku" && version == 505 {
		g.disable = true
	}
	return g
}

// versionOf reads claude-opus-5-5, claude-sonnet-4-20250514, claude-haiku-4.5 and claude-3-7-sonnet-latest, also behind the prefix of a
// cloud (eu.anthropic.claude-…). Numbers of more than two digits are dates.
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
		n, err := strconv.Atoi(part)
		switch {
		case err != nil && family == "":
			family = part
		case err == nil && n >= 0 && len(part) <= 2 && len(numbers) < 2:
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
