package routing

import (
	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/caller"
)

// Models returns what the caller can use, by id: the enabled models that its key and team allow and whose vendor it
// holds a credential for. Readers must not change them.
func (t *Table) Models(c *caller.Caller) []*ktmsv1.ModelSpec {
	w := t.walk(c, &Query{})
	var specs []*ktmsv1.ModelSpec
	for _, m := range t.byID {
		if _, drop, _ := w.access(m); drop == Kept {
			specs = append(specs, m.spec)
		}
	}
	return specs
}

// Model returns a model of the catalogue, a disabled one too. Readers must not change it.
func (t *Table) Model(id string) (*ktmsv1.ModelSpec, bool) {
	m, ok := t.models[id]
	if !ok {
		return nil, false
	}
	return m.spec, true
}
