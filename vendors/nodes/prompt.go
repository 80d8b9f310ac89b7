package nodes

import (
	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/vendors"
)

// want is what a choice needs to know of a request.
type want struct {
	model          string
	prompt, output int64
	// prefixes are computed when there is more than one machine to choose from.
	prefixes func() []selection.Prefix
}

func wantText(t vendors.Target, req *ktmsv1.GenerateTextRequest) want {
	return want{
		model: t.Model, prompt: t.Visit.PromptTokens, output: int64(req.GetMaxOutputTokens()),
		prefixes: func() []selection.Prefix { return selection.Prefixes(promptOf(t, req)) },
	}
}

// promptOf is what of a request stands at the beginning of what the engine reads: tools and instructions, then the turns.
func promptOf(t vendors.Target, req *ktmsv1.GenerateTextRequest) selection.Prompt {
	p := selection.Prompt{Tenant: t.Visit.Tenant, Model: t.Model, Tokens: t.Visit.PromptTokens}
	// The same content has to give the same bytes, within this release at least.
	marshal := proto.MarshalOptions{Deterministic: true}
	head := &ktmsv1.GenerateTextRequest{BaseSystemInstruction: req.GetBaseSystemInstruction(),
		RequestInstruction: req.GetRequestInstruction(), Tools: req.GetTools()}
	p.Head, _ = marshal.Marshal(head) // of a message that was decoded before
	p.Messages = make([][]byte, 0, len(req.GetMessages()))
	for _, m := range req.GetMessages() {
		turn, _ := marshal.Marshal(m)
		p.Messages = append(p.Messages, turn)
	}
	return p
}
