package anthropic

import (
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
)

// minBudget is the least number of tokens that the vendor lets a model think with, where it has to be told one.
const minBudget = 1024

// think says how much to think. Without an effort nothing is said.
func (e *encoder) think() {
	asked := e.req.GetReasoningEffort()
	if e.gen.Style == claude.Always && e.gen.Disable && e.demandsCall() {
		e.thinking = "disabled" // it would be on, and then the vendor refuses the demand
	}
	if asked == "none" {
		switch {
		case e.gen.Style == claude.Never: // happens anyway
		case !e.gen.Disable:
			e.Drop(vendors.ReasoningEffort.Param())
		case e.Carries(vendors.ReasoningEffort, true):
			e.thinking = "disabled"
		}
		return
	}
	if !e.Carries(vendors.ReasoningEffort, asked != "") {
		return
	}
	effort := e.gen.Effort(asked)
	switch {
	case effort == "", e.gen.Style == claude.Budgeted && !e.budgetFor(effort):
		e.Drop(vendors.ReasoningEffort.Param())
	case e.gen.Style == claude.Budgeted:
	default:
		e.effort = effort
		if e.gen.Style == claude.OnRequest && !e.demandsCall() {
			e.thinking = "adaptive"
		}
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
	room := e.maxTokens / 2 // the answer has to fit, too
	if e.req.GetMaxOutputTokens() == 0 {
		room = max(room, e.maxTokens-claude.AnswerRoom)
	}
	budget := min(claude.Budget(effort), room)
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
