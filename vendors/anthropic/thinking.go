package anthropic

import "github.com/ai-process/ktms/vendors"

// Of the tokens that a model may think with, where it has to be told a number.
const (
	minBudget = 1024 // of the vendor
	// answerRoom is what a ceiling of ours leaves for the answer itself.
	answerRoom = defaultMaxTokens
)

// budgets are the tokens for each effort. A tool loop or a proof takes some ten thousand; more rarely helps and costs
// minutes.
var budgets = map[string]int64{"low": 2048, "medium": 8192, "high": 24576, "xhigh": 32768, "max": 32768}

// efforts are the efforts that can be asked for, in the vendor's words.
var efforts = map[string]string{
	"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max",
}

// think says how much to think. Without an effort nothing is said.
func (e *encoder) think() {
	asked := e.req.GetReasoningEffort()
	if asked == "none" {
		switch {
		case e.gen.style == never: // happens anyway
		case !e.gen.disable:
			e.Drop(vendors.ReasoningEffort.Param())
		case e.Carries(vendors.ReasoningEffort, true):
			e.thinking = "disabled"
		}
		return
	}
	if !e.Carries(vendors.ReasoningEffort, asked != "") {
		return
	}
	effort := efforts[asked]
	if effort == "" {
		e.Drop(vendors.ReasoningEffort.Param())
		return
	}
	if e.gen.style == budgeted {
		if !e.budgetFor(effort) {
			e.Drop(vendors.ReasoningEffort.Param())
		}
		return
	}
	if effort == "xhigh" && !e.gen.xhigh {
		effort = "high"
	}
	e.effort = effort
	if e.gen.style == onRequest && !e.demandsCall() {
		e.thinking = "adaptive"
	}
}

// demandsCall reports whether tool_choice demands a call, which a model cannot answer while it thinks.
func (e *encoder) demandsCall() bool {
	return e.choice != nil && (e.choice.kind == "any" || e.choice.kind == "tool")
}

// budgetFor switches thinking on with a number of tokens, if the request allows it.
func (e *encoder) budgetFor(effort string) bool {
	if e.demandsCall() || e.inUnthoughtLoop() {
		return false
	}
	budget := budgets[effort]
	room := e.maxTokens / 2              // the answer has to fit, too
	if e.req.GetMaxOutputTokens() == 0 { // the ceiling is ours
		raised := budget + answerRoom
		if most := e.target.MaxOutputTokens; most > 0 {
			raised = min(raised, most)
		}
		e.maxTokens = max(e.maxTokens, raised)
		room = max(e.maxTokens/2, e.maxTokens-answerRoom)
	}
	budget = min(budget, room)
	if budget < minBudget {
		return false
	}
	e.thinking, e.budget = "enabled", budget
	return true
}

// inUnthoughtLoop reports whether results answer a turn of the assistant that has no thinking: the vendor wants such a
// turn to go on as it began.
func (e *encoder) inUnthoughtLoop() bool {
	n := len(e.turns)
	if n < 2 || e.turns[n-1].role != "user" || e.turns[n-1].blocks[0].kind != "tool_result" {
		return false
	}
	return e.turns[n-2].blocks[0].raw == nil
}
