package gateway

import (
	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/dispatch"
	"github.com/ai-process/ktms/vendors"
)

const (
	// believedTimes is how often our estimate goes into a count that is believed: old tokenizers need several tokens for a
	// letter of a script that they do not know.
	believedTimes = 8
	// believedMore is how many tokens more a prompt may have: templates, and pictures that an engine looks at closely.
	believedMore = 32 << 10
	// believedHidden is how many tokens of an answer may have been thought and not told.
	believedHidden = 64 << 10
)

// believe corrects counts of a machine of the local pool that cannot be. They go into the budgets, the rates and the spend of
// whoever called; vendors are paid by what they count, but whoever lends a machine, or its engine's mistake, shall not be able
// to lock callers out. What is not believed is estimated. said is what the answer says, in tokens.
func (c *call) believe(a *dispatch.Attempt, u *ktmsv1.TokensUsage, said func() int64) {
	if a.Candidate.Spec.GetVendor() != vendors.Local {
		return
	}
	if input := c.input(); u.GetInput() > input*believedTimes+believedMore {
		u.Input, u.Estimated = input, true
	}
	hidden := int64(believedHidden)
	if most := int64(c.req.GetMaxOutputTokens()); most > 0 {
		hidden = min(hidden, most*int64(max(c.req.GetN(), 1)))
	}
	if output := said(); u.GetOutput() > output*believedTimes+hidden {
		u.Output, u.Estimated = output, true
	}
	u.CacheRead = min(u.GetCacheRead(), u.GetInput())
	u.CacheWrite = min(u.GetCacheWrite(), u.GetInput()-u.GetCacheRead())
	u.InputAudio = min(u.GetInputAudio(), u.GetInput())
	u.Reasoning = min(u.GetReasoning(), u.GetOutput())
	u.OutputAudio = min(u.GetOutputAudio(), u.GetOutput())
	u.AcceptedPrediction = min(u.GetAcceptedPrediction(), u.GetOutput())
	u.RejectedPrediction = min(u.GetRejectedPrediction(), u.GetOutput())
}

func nothing() int64 { return 0 }
