package routing

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/vendors"
)

// checker collects the mistakes of a configuration. What one message can say alone (ranges, lengths, patterns) is
// ruled beside its fields in the protos; here is what takes the whole configuration to see, and what Plan relies on.
type checker struct {
	cfg    *store.Config
	models map[string]*ktmsv1.ModelSpec
	found  []status.Violation
}

func check(cfg *store.Config) []status.Violation {
	c := &checker{cfg: cfg, models: make(map[string]*ktmsv1.ModelSpec, len(cfg.Models))}
	c.checkModels()
	c.checkRules()
	c.checkCoverage()
	c.checkTeams()
	c.checkLimits()
	return c.found
}

func (c *checker) add(path, format string, args ...any) {
	c.found = append(c.found, status.Violation{Path: path, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) checkModels() {
	first := map[string]int{}
	for i, m := range c.cfg.Models {
		path := fmt.Sprintf("models[%d]", i)
		id := m.GetId()
		other, twice := first[id]
		switch {
		case id == "":
			c.add(path+".id", "is empty")
		case reserved(id):
			c.add(path+".id", "%q is reserved for automatic routing; choose another id", id)
		case id == Everyone:
			c.add(path+".id", "%q stands for every model in limits; choose another id", id)
		case twice:
			c.add(path+".id", "%q is also the id of models[%d]", id, other)
		default:
			first[id] = i
			c.models[id] = m
		}
		c.checkEndpoint(path+".endpoint", m)
		c.checkEfforts(path+".efforts", m.GetEfforts())
		c.checkTiers(path+".price_tiers", m.GetPriceTiers())
	}
}

func (c *checker) checkEndpoint(path string, m *ktmsv1.ModelSpec) {
	vendor, endpoint := m.GetVendor(), m.GetEndpoint()
	switch {
	case vendor == vendors.Local && endpoint != "":
		c.add(path, "must be empty for vendor local, whose nodes register their own addresses")
	case endpoint == "" && (vendor == vendors.Azure || vendor == vendors.Ollama):
		c.add(path, "is required for vendor %s", vendor)
	case endpoint != "":
		if mistake := endpointMistake(endpoint); mistake != "" {
			c.add(path, "%s", mistake)
		}
	}
}

// endpointMistake never repeats the address, which may hold a password.
func endpointMistake(endpoint string) string {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return "must start with http:// or https://"
	case u.Hostname() == "":
		return "names no host"
	case u.User != nil:
		return "must not hold a user or password; the vendor key is the place for credentials"
	default:
		return ""
	}
}

func (c *checker) checkEfforts(path string, list []ktmsv1.Effort) {
	for i, e := range list {
		if !slices.Contains(efforts[:], e) {
			c.add(fmt.Sprintf("%s[%d]", path, i), "%s is no effort of a model", e)
		}
	}
}

func (c *checker) checkTiers(path string, tiers []*ktmsv1.PriceTier) {
	var last int64
	for i, tier := range tiers {
		above := tier.GetAbovePromptTokens()
		if above <= last {
			c.add(fmt.Sprintf("%s[%d].above_prompt_tokens", path, i), "must be more than %d, as tiers rise", last)
		}
		last = max(last, above)
	}
}

// checkCoverage makes sure that no call can fall through: for every effort, the rule that catches what no other one
// matched exists and has a model that serves the effort. Only the highest of several catch-alls counts, since the
// lower ones never see a call. Disabled models count, so that one can be switched off in an emergency.
func (c *checker) checkCoverage() {
	if len(c.cfg.Rules) == 0 {
		return // nothing is configured yet
	}
	for _, e := range efforts {
		at := -1
		for i, r := range c.cfg.Rules {
			if r.GetEnabled() && narrowedByEffortOnly(r) && covers(r, e) &&
				(at < 0 || r.GetPriority() > c.cfg.Rules[at].GetPriority()) {
				at = i
			}
		}
		switch {
		case at < 0:
			c.add("rules", "no enabled rule catches every %s call; add one with effort %s or none, and without "+
				"attributes, org_id and team_id", e, e)
		case c.cfg.Rules[at].GetEffort() == ktmsv1.Effort_EFFORT_UNSPECIFIED && !c.anyServes(c.cfg.Rules[at], e):
			c.add(fmt.Sprintf("rules[%d].use", at), "is the catch-all of %s, but none of its models serves that effort; "+
				"add one that does, or a catch-all with effort %s and a higher priority", e, e)
		}
	}
}

func narrowedByEffortOnly(r *ktmsv1.RuleSpec) bool {
	return len(r.GetAttributes()) == 0 && r.GetOrgId() == "" && r.GetTeamId() == ""
}

func covers(r *ktmsv1.RuleSpec, e ktmsv1.Effort) bool {
	return r.GetEffort() == e || r.GetEffort() == ktmsv1.Effort_EFFORT_UNSPECIFIED
}

// anyServes takes the benefit of the doubt where the chain itself has been reported: empty, or with unknown models.
func (c *checker) anyServes(r *ktmsv1.RuleSpec, e ktmsv1.Effort) bool {
	return len(r.GetUse()) == 0 || slices.ContainsFunc(r.GetUse(), func(id string) bool {
		m, known := c.models[id]
		return !known || declares(m, e)
	})
}

func declares(m *ktmsv1.ModelSpec, e ktmsv1.Effort) bool {
	return len(m.GetEfforts()) == 0 || slices.Contains(m.GetEfforts(), e)
}

func (c *checker) checkTeams() {
	first := map[string]int{}
	for i, t := range c.cfg.Teams {
		if other, twice := first[t.ID]; twice {
			c.add(fmt.Sprintf("teams[%d].id", i), "%q is also the id of teams[%d]", t.ID, other)
			continue
		}
		first[t.ID] = i
	}
}

// reserved says which ids the model grammar takes for itself.
func reserved(id string) bool { return id == auto || strings.HasPrefix(id, auto+":") }
