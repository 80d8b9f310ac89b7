package bedrock

import (
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
)

// model is what an id says about a model. Ids come with a region in front (us.anthropic.…) and as ARNs that end in one;
// the ARN of an application's own inference profile says nothing.
type model struct {
	// gen is what a Claude model takes, and for others what can be asked of a model that nobody knows: nothing is enforced.
	gen          claude.Generation
	claude, nova bool
}

// modelOf reads an id; without one it is a current Claude model.
func modelOf(id string) model {
	gen, known := claude.GenerationOf(id)
	return model{gen: gen, claude: known, nova: strings.Contains(id, "amazon.nova")}
}

// MaxOutput implements vendors.Bounder: only thinking that has a budget comes with a ceiling of the dialect's own.
func (v *Vendor) MaxOutput(t vendors.Target, req *ktmsv1.GenerateTextRequest) int64 {
	m, effort := modelOf(t.Model), req.GetReasoningEffort()
	if !m.claude || effort == "" || m.gen.Style != claude.Budgeted {
		return 0
	}
	return m.gen.Ceiling(effort)
}
