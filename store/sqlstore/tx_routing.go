package sqlstore

import (
	"context"
	"fmt"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store"
)

// PutModel inserts or replaces.
func (t *Tx) PutModel(ctx context.Context, model *ktmsv1.ModelSpec) error {
	spec, err := encodeMessage(model)
	if err == nil {
		_, err = t.write(ctx, `
			INSERT INTO models (id, spec) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET spec = excluded.spec`,
			model.GetId(), spec)
	}
	if err != nil {
		return fmt.Errorf("put model %q: %w", model.GetId(), err)
	}
	return nil
}

// DeleteModel removes one.
func (t *Tx) DeleteModel(ctx context.Context, id string) error {
	if err := t.writeOne(ctx, store.ErrNotFound, `DELETE FROM models WHERE id = $1`, id); err != nil {
		return fmt.Errorf("delete model %q: %w", id, err)
	}
	return nil
}

// ReplaceRules swaps the whole set.
func (t *Tx) ReplaceRules(ctx context.Context, rules []*ktmsv1.RuleSpec) error {
	if _, err := t.write(ctx, `DELETE FROM rules WHERE ordinal >= 0`); err != nil {
		return fmt.Errorf("delete rules: %w", err)
	}
	for ordinal, rule := range rules {
		spec, err := encodeMessage(rule)
		if err == nil {
			_, err = t.write(ctx, `INSERT INTO rules (ordinal, priority, spec) VALUES ($1, $2, $3)`,
				ordinal, rule.GetPriority(), spec)
		}
		if err != nil {
			return fmt.Errorf("insert rule %q: %w", rule.GetName(), err)
		}
	}
	return nil
}
