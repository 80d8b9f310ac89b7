package bedrock

import (
	"strings"

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
