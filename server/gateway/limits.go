package gateway

import (
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/vendors"
)

// limited is what limits need to know of a text call.
func (s *Service) limited(c *call, table *routing.Table) admit.Call {
	return admit.Call{
		ID: c.id, Caller: c.caller, UserID: c.req.GetAttributes()[routing.AttrUserID], Limits: table, Input: c.input,
		Choices: int64(c.req.GetN()), MaxOutput: int64(c.req.GetMaxOutputTokens()),
		Output:    func(target vendors.Target) int64 { return s.longest(target, c.req) },
		LongCache: longCache(c.req),
	}
}

// longest is the most tokens of one answer that a target is asked for: by the caller, or else by the dialect. 0 is no
// bound.
func (s *Service) longest(target vendors.Target, req *ktmsv1.GenerateTextRequest) int64 {
	if asked := int64(req.GetMaxOutputTokens()); asked > 0 {
		return asked
	}
	if bounds, ok := s.options.Vendors[target.Vendor].(vendors.Bounder); ok {
		return bounds.MaxOutput(target, req)
	}
	return 0
}

// input estimates the prompt of the call, once.
func (c *call) input() int64 {
	if c.estimate == 0 {
		if c.embed != nil {
			c.estimate = admit.EstimateEmbeddings(c.embed)
		} else {
			c.estimate = admit.EstimateInput(c.req)
		}
	}
	return c.estimate
}

// hourly is how a request for an hour's cache spells it, in the members that only Claude reads.
const hourly = `"1h"`

// longCache reports whether a request may write to an hour's cache, which has a price of its own.
func longCache(req *ktmsv1.GenerateTextRequest) bool {
	if strings.Contains(req.GetExtraJson(), hourly) {
		return true
	}
	for _, m := range req.GetMessages() {
		if strings.Contains(m.GetExtraJson(), hourly) {
			return true
		}
		for _, p := range m.GetParts() {
			if strings.Contains(p.GetExtraJson(), hourly) || strings.Contains(p.GetRawJson(), hourly) {
				return true
			}
		}
	}
	for _, t := range req.GetTools() {
		if strings.Contains(t.GetExtraJson(), hourly) || strings.Contains(t.GetRawJson(), hourly) {
			return true
		}
	}
	return false
}
