package gateway

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/dispatch"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/vendors"
)

// account prices what an attempt used, and notes it.
func account(a *dispatch.Attempt, u *ktmsv1.TokensUsage) {
	u.CostNanousd = admit.Cost(a.Candidate.Spec, u, a.Started(), admit.Interactive)
	a.Used(u)
}

// accountAnswer is account for a whole answer.
func (c *call) accountAnswer(a *dispatch.Attempt, r *ktmsv1.GenerateTextResponse) {
	if r.Usage == nil {
		r.Usage = &ktmsv1.TokensUsage{}
	}
	said := func() int64 { return admit.EstimateAnswer(r) }
	c.completeUsage(r.Usage, said)
	c.believe(a, r.Usage, said)
	account(a, r.Usage)
}

// completeUsage estimates what a vendor did not count. A zero is no count: a prompt has tokens, and so has an answer that says
// something.
func (c *call) completeUsage(u *ktmsv1.TokensUsage, said func() int64) {
	if u.GetInput() == 0 {
		u.Input, u.Estimated = c.input(), true
	}
	if u.GetOutput() == 0 {
		if output := said(); output > 0 {
			u.Output, u.Estimated = output, true
		}
	}
}

// accountFailure is account for a failed attempt: vendors bill refusals that they counted. A caller that leaves before
// the answer does not make the vendor forget the prompt, or leaving would be a way around every limit.
func (c *call) accountFailure(a *dispatch.Attempt, err error) {
	failed, ok := errors.AsType[*vendors.Error](err)
	switch {
	case ok && failed.Usage != nil:
		c.believe(a, failed.Usage, nothing)
		account(a, failed.Usage)
	case c.ctx.Err() != nil && a.Usage() == nil && !dispatch.Unreached(failed):
		account(a, &ktmsv1.TokensUsage{Input: c.input(), Estimated: true})
	}
}

// regularTiers are the service tiers at regular prices, in the words of all vendors.
var regularTiers = []string{"", "auto", "default", "standard", "standard_only", "on_demand"}

// requestFor is the request as one candidate gets it. untaken are the parameters that it lacks.
//
// A service tier that has a price of its own, which the catalogue does not know, is left out: its cost could not be told.
// A model without prices may be asked for any. An answer is bounded by what the model has, since no more is reserved for
// it.
func requestFor(c *routing.Candidate, req *ktmsv1.GenerateTextRequest) (_ *ktmsv1.GenerateTextRequest, untaken []string, err error) {
	most := c.Spec.GetMaxOutputTokens()
	tooLong := most > 0 && int64(req.GetMaxOutputTokens()) > most
	unpriced := !slices.Contains(regularTiers, req.GetServiceTier()) && admit.Priced(c.Spec)
	if !tooLong && !unpriced {
		return req, nil, nil
	}
	own := proto.CloneOf(req)
	if tooLong {
		own.MaxOutputTokens = int32(most)
		untaken = append(untaken, vendors.MaxOutputTokens.Param())
		if req.GetStrictParams() {
			return nil, nil, untakeable(c, vendors.MaxOutputTokens, fmt.Sprintf("the model gives %d tokens at most", most))
		}
	}
	if unpriced {
		own.ServiceTier = ""
		untaken = append(untaken, vendors.ServiceTier.Param())
		if req.GetStrictParams() {
			return nil, nil, untakeable(c, vendors.ServiceTier, "the catalogue has no price for this tier")
		}
	}
	return own, untaken, nil
}

// untakeable refuses a field for a candidate, since the caller wants nothing to be left out.
func untakeable(c *routing.Candidate, field vendors.Field, why string) error {
	return &vendors.Error{Kind: vendors.Unsupported, Vendor: c.Target.Vendor, Param: field.Param(), Message: field.Param() + ": " + why}
}
