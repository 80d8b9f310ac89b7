package bedrock

import (
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/ai-process/ktms/vendors"
)

// dialect marks the opaque state of this package.
const dialect = "bedrock"

// thought is one block of reasoning as it travels through callers: what the model thought with its signature, or what
// it thought in a form that only the vendor can read.
type thought struct {
	Text      string `json:"text,omitempty"`
	Signature string `json:"signature,omitempty"`
	Redacted  []byte `json:"redacted,omitempty"`
}

// sealReasoning packs the reasoning of an answer. Without a signature there is nothing that the vendor wants back.
func sealReasoning(model string, thoughts []thought) string {
	var kept []thought
	for _, t := range thoughts {
		if t.Signature != "" || len(t.Redacted) > 0 {
			kept = append(kept, t)
		}
	}
	if kept == nil {
		return ""
	}
	state, err := json.Marshal(kept)
	if err != nil {
		return ""
	}
	return vendors.SealOpaque(dialect, model, state)
}

// openReasoning unpacks the reasoning of an earlier answer; nil if it is not ours, or damaged.
func openReasoning(model, opaque string) []types.ContentBlock {
	state := vendors.OpenOpaque(dialect, model, opaque)
	if state == nil {
		return nil
	}
	var thoughts []thought
	if json.Unmarshal(state, &thoughts) != nil {
		return nil
	}
	var out []types.ContentBlock
	for _, t := range thoughts {
		var block types.ReasoningContentBlock
		switch {
		case len(t.Redacted) > 0:
			block = &types.ReasoningContentBlockMemberRedactedContent{Value: t.Redacted}
		case t.Signature != "":
			block = &types.ReasoningContentBlockMemberReasoningText{Value: types.ReasoningTextBlock{Text: &t.Text, Signature: &t.Signature}}
		default:
			continue
		}
		out = append(out, &types.ContentBlockMemberReasoningContent{Value: block})
	}
	return out
}

// cachePoint reads cache_control as Claude's own API spells it; nil if it says something else.
func cachePoint(text json.RawMessage) *types.CachePointBlock {
	var control struct {
		Type string `json:"type"`
		TTL  string `json:"ttl"`
	}
	if json.Unmarshal(text, &control) != nil || control.Type != "ephemeral" {
		return nil
	}
	ttl := types.CacheTTL(control.TTL)
	if ttl != "" && ttl != types.CacheTTLFiveMinutes && ttl != types.CacheTTLOneHour {
		return nil
	}
	return &types.CachePointBlock{Type: types.CachePointTypeDefault, Ttl: ttl}
}
