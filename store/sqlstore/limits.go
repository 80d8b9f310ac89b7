package sqlstore

import (
	"context"
	"fmt"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store"
)

const (
	listSpendLimits = `SELECT subject_type, subject_id, period, limit_nano_usd FROM spend_limits
		ORDER BY subject_type, subject_id, period`
	listUserRateLimits = `SELECT user_id, model_id, rpm, rpm_burst FROM user_rate_limits ORDER BY user_id, model_id`
)

// PutSpendLimit inserts or replaces.
func (t *Tx) PutSpendLimit(ctx context.Context, limit *ktmsv1.SpendLimit) error {
	_, err := t.write(ctx, `
		INSERT INTO spend_limits (subject_type, subject_id, period, limit_nano_usd) VALUES ($1, $2, $3, $4)
		ON CONFLICT (subject_type, subject_id, period) DO UPDATE SET limit_nano_usd = excluded.limit_nano_usd`,
		limit.GetSubjectType(), limit.GetSubjectId(), limit.GetPeriod(), limit.GetLimitNanousd())
	if err != nil {
		return fmt.Errorf("put spend limit of %s %q: %w", limit.GetSubjectType(), limit.GetSubjectId(), err)
	}
	return nil
}

// DeleteSpendLimit removes one.
func (t *Tx) DeleteSpendLimit(ctx context.Context, subjectType, subjectID, period string) error {
	err := t.writeOne(ctx, store.ErrNotFound,
		`DELETE FROM spend_limits WHERE subject_type = $1 AND subject_id = $2 AND period = $3`,
		subjectType, subjectID, period)
	if err != nil {
		return fmt.Errorf("delete spend limit of %s %q: %w", subjectType, subjectID, err)
	}
	return nil
}

// PutUserRateLimit inserts or replaces.
func (t *Tx) PutUserRateLimit(ctx context.Context, limit *ktmsv1.UserRateLimit) error {
	_, err := t.write(ctx, `
		INSERT INTO user_rate_limits (user_id, model_id, rpm, rpm_burst) VALUES ($1, $2, $3, $4)
		ON CONFLICT (user_id, model_id) DO UPDATE SET rpm = excluded.rpm, rpm_burst = excluded.rpm_burst`,
		limit.GetUserId(), limit.GetModelId(), limit.GetRpm(), limit.GetRpmBurst())
	if err != nil {
		return fmt.Errorf("put rate limit of user %q: %w", limit.GetUserId(), err)
	}
	return nil
}

// DeleteUserRateLimit removes one.
func (t *Tx) DeleteUserRateLimit(ctx context.Context, userID, modelID string) error {
	err := t.writeOne(ctx, store.ErrNotFound,
		`DELETE FROM user_rate_limits WHERE user_id = $1 AND model_id = $2`, userID, modelID)
	if err != nil {
		return fmt.Errorf("delete rate limit of user %q: %w", userID, err)
	}
	return nil
}

func scanSpendLimit(row Row) (*ktmsv1.SpendLimit, error) {
	limit := new(ktmsv1.SpendLimit)
	err := row.Scan(&limit.SubjectType, &limit.SubjectId, &limit.Period, &limit.LimitNanousd)
	return limit, err
}

func scanUserRateLimit(row Row) (*ktmsv1.UserRateLimit, error) {
	limit := new(ktmsv1.UserRateLimit)
	err := row.Scan(&limit.UserId, &limit.ModelId, &limit.Rpm, &limit.RpmBurst)
	return limit, err
}
