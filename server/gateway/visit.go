package gateway

import (
	"strconv"
	"time"

	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/dispatch"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/vendors"
)

// interactivePatience is the longest that a person's request waits for a slot of the local pool: whoever watches a screen
// is served by the next model sooner.
const interactivePatience = 250 * time.Millisecond

// target is where an attempt goes. Of the local pool it says what choosing a machine needs to know.
func (c *call) target(a *dispatch.Attempt) vendors.Target {
	t := a.Candidate.Target
	if t.Vendor != vendors.Local {
		return t
	}
	patience := time.Duration(a.Candidate.Spec.GetQueueTimeoutMs()) * time.Millisecond
	if c.user() != "" { // a service names no user
		patience = min(patience, interactivePatience)
	}
	t.Visit = vendors.Visit{
		ID: c.id + "-" + strconv.Itoa(a.Number), Tenant: tenant(c.caller), PromptTokens: c.input(),
		Patience: patience, Tried: a.Tried,
	}
	return t
}

func (c *call) user() string {
	if c.embed != nil {
		return c.embed.GetAttributes()[routing.AttrUserID]
	}
	return c.req.GetAttributes()[routing.AttrUserID]
}

// tenant is whose prompts may be found on a machine for the caller: its organisation's, or the key's own.
func tenant(c *caller.Caller) string {
	if c.OrgID != "" {
		return "org:" + c.OrgID
	}
	return "key:" + c.KeyID
}
