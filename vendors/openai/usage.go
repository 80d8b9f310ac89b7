package openai

import (
	"strconv"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// usage reads what the vendor counted; nil when it did not, which a usage without a figure does not either.
func usage(u *openaiapi.Usage) *ktmsv1.TokensUsage {
	if u == nil {
		return nil
	}
	out := &ktmsv1.TokensUsage{Input: u.PromptTokens, Output: u.CompletionTokens}
	if p := u.PromptTokensDetails; p != nil {
		out.CacheRead, out.CacheWrite, out.InputAudio = p.CachedTokens, p.CacheWriteTokens, p.AudioTokens
	}
	if c := u.CompletionTokensDetails; c != nil {
		out.Reasoning, out.OutputAudio = c.ReasoningTokens, c.AudioTokens
		out.AcceptedPrediction, out.RejectedPrediction = c.AcceptedPredictionTokens, c.RejectedPredictionTokens
	}
	if out.CacheRead == 0 { // DeepSeek, and those who have it at the top
		out.CacheRead = max(count(u.Extra, "prompt_cache_hit_tokens"), count(u.Extra, "cached_tokens"))
	}
	if out.Input == 0 {
		out.Input = out.CacheRead + count(u.Extra, "prompt_cache_miss_tokens")
	}
	switch {
	case out.Output == 0 && u.TotalTokens > out.Input:
		out.Output = u.TotalTokens - out.Input
	case out.Reasoning > 0 && u.TotalTokens == out.Input+out.Output+out.Reasoning:
		out.Output += out.Reasoning // some servers count reasoning beside the answer instead of within it
	}
	for _, figure := range []*int64{
		&out.Input, &out.Output, &out.CacheRead, &out.CacheWrite, &out.Reasoning, &out.InputAudio, &out.OutputAudio,
		&out.AcceptedPrediction, &out.RejectedPrediction,
	} {
		*figure = max(*figure, 0) // a negative count would turn into a credit
	}
	if out.Input == 0 && out.Output == 0 {
		return nil
	}
	out.CacheRead = min(out.CacheRead, out.Input)
	out.CacheWrite = min(out.CacheWrite, out.Input-out.CacheRead)
	out.Reasoning = min(out.Reasoning, out.Output)
	return out
}

func count(members openaiapi.Members, name string) int64 {
	n, err := strconv.ParseInt(string(members.Get(name)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// groqOwn is what Groq says beside the chat API.
type groqOwn struct {
	usage *openaiapi.Usage
	err   *openaiapi.ErrorBody
}

// takeGroq takes x_groq out of an answer or a chunk. It holds the usage of a stream and an error where one happened;
// the id in it is of use to nobody else.
func takeGroq(extra *openaiapi.Members) groqOwn {
	raw := extra.Take("x_groq")
	if raw == nil {
		return groqOwn{}
	}
	members, err := openaiapi.ParseMembers(raw)
	if err != nil {
		return groqOwn{}
	}
	own := groqOwn{usage: openaiapi.DecodeUsage(members.Get("usage"))}
	if members.Get("error") != nil {
		own.err = openaiapi.DecodeError(raw)
	}
	return own
}
