package bedrock

import (
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// usage reads what the vendor counted; nil when it did not. Its input leaves out what the prompt cache read and wrote.
func usage(u *types.TokenUsage) *ktmsv1.TokensUsage {
	if u == nil {
		return nil
	}
	out := &ktmsv1.TokensUsage{
		Output: count(u.OutputTokens), CacheRead: count(u.CacheReadInputTokens), CacheWrite: count(u.CacheWriteInputTokens),
	}
	var short, long int64
	for i := range u.CacheDetails {
		if d := &u.CacheDetails[i]; d.Ttl == types.CacheTTLOneHour {
			long += count(d.InputTokens)
		} else {
			short += count(d.InputTokens)
		}
	}
	// The details are parts of what was written; they count alone where the sum is missing.
	written := max(out.CacheWrite, short+long)
	out.CacheWrite, out.CacheWrite_1H = written-long, long
	out.Input = count(u.InputTokens) + out.CacheRead + written
	return out
}

// count reads a number of tokens. A negative one would turn into a credit.
func count(n *int32) int64 {
	if n == nil {
		return 0
	}
	return int64(max(*n, 0))
}
