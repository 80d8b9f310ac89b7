package routing

import (
	"fmt"
	"slices"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// checkRules holds disabled rules to the same standard, so that enabling one can surprise nobody.
func (c *checker) checkRules() {
	names, priorities := map[string]int{}, map[int32]int{}
	for i, r := range c.cfg.Rules {
		path := fmt.Sprintf("rules[%d]", i)
		name := r.GetName()
		if other, twice := names[name]; name == "" {
			c.add(path+".name", "is empty")
		} else if twice {
			c.add(path+".name", "%q is also the name of rules[%d]", name, other)
		} else {
			names[name] = i
		}
		if other, twice := priorities[r.GetPriority()]; twice {
			c.add(path+".priority", "%d is also the priority of rules[%d] (%q)", r.GetPriority(), other,
				c.cfg.Rules[other].GetName())
		} else {
			priorities[r.GetPriority()] = i
		}
		c.checkEffort(path+".effort", r)
		c.checkAttributes(path, r)
		c.checkUse(path+".use", r)
		c.checkWeights(path+".weights", r)
		c.checkShadow(path, r)
	}
}

func (c *checker) checkEffort(path string, r *ktmsv1.RuleSpec) {
	e := r.GetEffort()
	if modality, named := r.GetAttributes()[AttrModality]; named {
		if e != ktmsv1.Effort_EFFORT_UNSPECIFIED && e != ktmsv1.Effort_EFFORT_LOW {
			c.add(path, "%s never matches, as calls of modality %q carry no effort; leave it out", e, modality)
		}
		return
	}
	if e != ktmsv1.Effort_EFFORT_UNSPECIFIED && !slices.Contains(efforts[:], e) {
		c.add(path, "%s is no effort", e)
	}
}

func (c *checker) checkAttributes(path string, r *ktmsv1.RuleSpec) {
	modality, named := r.GetAttributes()[AttrModality]
	if named && !slices.Contains(modalities[:], Modality(modality)) {
		c.add(path+`.attributes["modality"]`, "is %q; it must be tts, image or judge", modality)
	}
	for _, t := range [...]struct{ name, field string }{
		{AttrOrgID, r.GetOrgId()},
		{AttrTeamID, r.GetTeamId()},
	} {
		value, set := r.GetAttributes()[t.name]
		at := fmt.Sprintf("%s.attributes[%q]", path, t.name)
		switch {
		case set && value == "":
			c.add(at, "is empty; leave it out to match every caller")
		case set && t.field != "" && t.field != value:
			c.add(path+"."+t.name, "is %q, but the attribute of that name is %q; set one of them", t.field, value)
		}
	}
}

// modalities are those that rules name.
var modalities = [...]Modality{Speech, Image, Judge}

func (c *checker) checkUse(path string, r *ktmsv1.RuleSpec) {
	use := r.GetUse()
	if len(use) == 0 {
		c.add(path, "names no model")
		return
	}
	modality := Modality(r.GetAttributes()[AttrModality])
	capable := false
	for i, id := range use {
		at := fmt.Sprintf("%s[%d]", path, i)
		m, known := c.models[id]
		switch {
		case !known:
			capable = true // one complaint is enough
			c.add(at, "model %q is not in the catalogue", id)
		case slices.Contains(use[:i], id):
			c.add(at, "model %q is in the chain already", id)
		case modality != Text:
			capable = capable || slices.Contains(m.GetCapabilities(), string(modality))
		case r.GetEffort() != ktmsv1.Effort_EFFORT_UNSPECIFIED && !declares(m, r.GetEffort()):
			c.add(at, "model %q does not serve %s; add the effort to the model or take the model out", id, r.GetEffort())
		}
	}
	if slices.Contains(modalities[:], modality) && !capable {
		c.add(path, "holds no model with the capability %s", modality)
	}
}

func (c *checker) checkWeights(path string, r *ktmsv1.RuleSpec) {
	weights, use := r.GetWeights(), r.GetUse()
	if len(weights) > 0 && len(weights) != len(use) {
		c.add(path, "holds %d weights for %d models; give one per model or none", len(weights), len(use))
	}
	for i, w := range weights {
		if w <= 0 {
			c.add(fmt.Sprintf("%s[%d]", path, i), "is %d; a weight must be positive", w)
		}
	}
}

func (c *checker) checkShadow(path string, r *ktmsv1.RuleSpec) {
	shadow := r.GetShadowModel()
	if _, known := c.models[shadow]; shadow != "" && !known {
		c.add(path+".shadow_model", "model %q is not in the catalogue", shadow)
	}
	if shadow == "" && r.GetShadowEval() {
		c.add(path+".shadow_eval", "needs a shadow_model to compare with")
	}
}
