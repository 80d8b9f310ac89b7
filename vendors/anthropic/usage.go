package anthropic

import ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"

// maxCount bounds a count of tokens, so that sums stay sums whatever a server sends.
const maxCount = 1 << 40

// wireUsage is what the vendor counted so far. The three parts of the input are disjoint.
type wireUsage struct {
	Input         *int64         `json:"input_tokens"`
	CacheRead     *int64         `json:"cache_read_input_tokens"`
	CacheCreation *int64         `json:"cache_creation_input_tokens"`
	Creation      *cacheCreation `json:"cache_creation"`
	Output        *int64         `json:"output_tokens"`
	OutputDetails *outputDetails `json:"output_tokens_details"`
	ServiceTier   string         `json:"service_tier"`
}

// cacheCreation splits what was written to the cache by its lifetime.
type cacheCreation struct {
	FiveMinutes int64 `json:"ephemeral_5m_input_tokens"`
	Hour        int64 `json:"ephemeral_1h_input_tokens"`
}

type outputDetails struct {
	Thinking int64 `json:"thinking_tokens"`
}

// merge takes over what a later count says. Counts are cumulative: nothing is added up, and one that says less, as of
// servers that write 0 for what they do not repeat, takes nothing back.
func (u *wireUsage) merge(later *wireUsage) *wireUsage {
	if u == nil {
		return later
	}
	if later == nil {
		return u
	}
	merged := *u
	for _, field := range []struct{ to, from **int64 }{
		{&merged.Input, &later.Input}, {&merged.CacheRead, &later.CacheRead}, {&merged.CacheCreation, &later.CacheCreation}, {&merged.Output, &later.Output},
	} {
		if *field.from != nil && (*field.to == nil || **field.from > **field.to) {
			*field.to = *field.from
		}
	}
	if c := later.Creation; c != nil {
		if u.Creation != nil {
			c = &cacheCreation{FiveMinutes: max(c.FiveMinutes, u.Creation.FiveMinutes), Hour: max(c.Hour, u.Creation.Hour)}
		}
		merged.Creation = c
	}
	if d := later.OutputDetails; d != nil {
		if u.OutputDetails != nil {
			d = &outputDetails{Thinking: max(d.Thinking, u.OutputDetails.Thinking)}
		}
		merged.OutputDetails = d
	}
	if later.ServiceTier != "" {
		merged.ServiceTier = later.ServiceTier
	}
	return &merged
}

// counted reads the usage; nil when the vendor sent none.
func (u *wireUsage) counted() *ktmsv1.TokensUsage {
	if u == nil {
		return nil
	}
	written := count(u.CacheCreation)
	out := &ktmsv1.TokensUsage{CacheRead: count(u.CacheRead), Output: count(u.Output)}
	if u.Creation != nil {
		out.CacheWrite_1H = count(&u.Creation.Hour)
		written = max(written, out.CacheWrite_1H+count(&u.Creation.FiveMinutes))
	}
	out.CacheWrite = written - out.CacheWrite_1H
	out.Input = count(u.Input) + out.CacheRead + written
	if u.OutputDetails != nil {
		out.Reasoning = min(count(&u.OutputDetails.Thinking), out.Output)
	}
	return out
}

// count reads a count; a negative one would turn into a credit.
func count(n *int64) int64 {
	if n == nil {
		return 0
	}
	return min(max(*n, 0), maxCount)
}
