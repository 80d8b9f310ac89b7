package gemini

import (
	"strconv"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

type wireUsage struct {
	Prompt     count      `json:"promptTokenCount"`
	Cached     count      `json:"cachedContentTokenCount"`
	Candidates count      `json:"candidatesTokenCount"`
	Thoughts   count      `json:"thoughtsTokenCount"`
	ToolUse    count      `json:"toolUsePromptTokenCount"`
	In         modalities `json:"promptTokensDetails"`
	Out        modalities `json:"candidatesTokensDetails"`
	Traffic    string     `json:"trafficType"`
}

// maxCount is more tokens than any call can have; sums of such figures stay in range.
const maxCount = 1 << 50

// count is a figure. A negative one, which would turn into a credit, and one that is none are 0.
type count int64

func (c *count) UnmarshalJSON(text []byte) error {
	f, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	if err != nil || !(f > 0) { // not a number, too
		f = 0
	}
	*c = count(min(f, maxCount))
	return nil
}

type modalities []struct {
	Modality string `json:"modality"`
	Tokens   count  `json:"tokenCount"`
}

func (m modalities) audio() int64 {
	var sum int64
	for _, d := range m {
		if d.Modality == "AUDIO" {
			sum = min(sum+int64(d.Tokens), maxCount)
		}
	}
	return sum
}

// usage reads what the vendor counted; nil when it did not, which a usage without a figure does not either. Thoughts are counted beside the answer, not within it.
func usage(u *wireUsage) *ktmsv1.TokensUsage {
	if u == nil {
		return nil
	}
	out := &ktmsv1.TokensUsage{
		Input: int64(u.Prompt + u.ToolUse), Output: int64(u.Candidates + u.Thoughts), Reasoning: int64(u.Thoughts),
	}
	if out.Input == 0 && out.Output == 0 {
		return nil
	}
	out.CacheRead = min(int64(u.Cached), out.GetInput())
	out.InputAudio = min(u.In.audio(), out.GetInput())
	out.OutputAudio = min(u.Out.audio(), int64(u.Candidates))
	return out
}

// tier is the service tier that the call was billed in; the vendor calls it a type of traffic.
func (u *wireUsage) tier() string {
	if u == nil {
		return ""
	}
	switch u.Traffic {
	case "ON_DEMAND":
		return "standard"
	case "ON_DEMAND_FLEX":
		return "flex"
	case "ON_DEMAND_PRIORITY":
		return "priority"
	}
	return ""
}
