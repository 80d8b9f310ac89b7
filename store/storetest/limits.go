package storetest

import (
	"context"
	"math/rand/v2"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store"
)

var limitTests = []test{
	{"keep every field", testLimitFields},
	{"replace and delete", testLimitReplace},
	{"sort byte by byte", testLimitOrder},
	{"stay when their key or model goes", testLimitStays},
	{"raise the version and are fed", testLimitFeed},
}

func spendLimit(subjectType, subjectID, period string, nanoUSD int64) *ktmsv1.SpendLimit {
	return &ktmsv1.SpendLimit{SubjectType: subjectType, SubjectId: subjectID, Period: period, LimitNanousd: nanoUSD}
}

func userLimit(userID, modelID string, rpm, burst int32) *ktmsv1.UserRateLimit {
	return &ktmsv1.UserRateLimit{UserId: userID, ModelId: modelID, Rpm: rpm, RpmBurst: burst}
}

func putSpendLimits(t testing.TB, s store.Store, limits ...*ktmsv1.SpendLimit) store.Change {
	t.Helper()
	return update(t, s, func(ctx context.Context, tx store.Tx) error {
		for _, limit := range limits {
			if err := tx.PutSpendLimit(ctx, limit); err != nil {
				return err
			}
		}
		return nil
	})
}

func putUserLimits(t testing.TB, s store.Store, limits ...*ktmsv1.UserRateLimit) store.Change {
	t.Helper()
	return update(t, s, func(ctx context.Context, tx store.Tx) error {
		for _, limit := range limits {
			if err := tx.PutUserRateLimit(ctx, limit); err != nil {
				return err
			}
		}
		return nil
	})
}

func wantLimits(t testing.TB, s store.Store, spend []*ktmsv1.SpendLimit, users []*ktmsv1.UserRateLimit) {
	t.Helper()
	got := config(t, s)
	wantMessages(t, got.SpendLimits, spend)
	wantMessages(t, got.UserRateLimits, users)
}

func testLimitFields(t *testing.T, opener Opener) {
	s := opener.open(t)
	spend, user := new(ktmsv1.SpendLimit), new(ktmsv1.UserRateLimit)
	fill(spend.ProtoReflect(), 1)
	fill(user.ProtoReflect(), 1)
	extreme := userLimit("ünï 'quoted'", "*", 1<<31-1, -1<<31)
	long, wide := spendLimit("user", longest(1), "month", 1<<53), userLimit(longest(2), longest(3), 1, 0)
	putSpendLimits(t, s, spend, long)
	putUserLimits(t, s, user, extreme, wide)
	wantLimits(t, s, []*ktmsv1.SpendLimit{spend, long}, []*ktmsv1.UserRateLimit{user, extreme, wide})
}

// longest is a name as long as the rules of the messages allow, of letters that take the most room and do not compress:
// two of them have to fit into one row of an index.
func longest(seed uint64) string {
	const letters, first, last = 256, 0x20000, 0x2a6df
	random := rand.New(rand.NewPCG(seed, seed))
	name := make([]rune, letters)
	for i := range name {
		name[i] = first + random.Int32N(last-first)
	}
	return string(name)
}

func testLimitReplace(t *testing.T, opener Opener) {
	s := opener.open(t)
	day, month := spendLimit("key", "a", "day", 5), spendLimit("key", "a", "month", 50)
	user, wide := userLimit("u", "gpt", 60, 5), userLimit("u", "*", 1, 0)
	putSpendLimits(t, s, day, month, spendLimit("key", "a", "day", 7))
	putUserLimits(t, s, wide, user, userLimit("u", "gpt", 0, -1))
	day, user = spendLimit("key", "a", "day", 7), userLimit("u", "gpt", 0, -1)
	wantLimits(t, s, []*ktmsv1.SpendLimit{day, month}, []*ktmsv1.UserRateLimit{wide, user})

	update(t, s, func(ctx context.Context, tx store.Tx) error {
		wantErr(t, "another subject", tx.DeleteSpendLimit(ctx, "user", "a", "day"), store.ErrNotFound)
		wantErr(t, "another name", tx.DeleteSpendLimit(ctx, "key", "b", "day"), store.ErrNotFound)
		wantErr(t, "another period", tx.DeleteSpendLimit(ctx, "key", "a", "year"), store.ErrNotFound)
		wantErr(t, "another user", tx.DeleteUserRateLimit(ctx, "*", "gpt"), store.ErrNotFound)
		wantErr(t, "another model", tx.DeleteUserRateLimit(ctx, "u", "g"), store.ErrNotFound)
		if err := tx.DeleteSpendLimit(ctx, "key", "a", "day"); err != nil {
			return err
		}
		wantErr(t, "a spend limit twice", tx.DeleteSpendLimit(ctx, "key", "a", "day"), store.ErrNotFound)
		return tx.DeleteUserRateLimit(ctx, "u", "*")
	})
	wantLimits(t, s, []*ktmsv1.SpendLimit{month}, []*ktmsv1.UserRateLimit{user})
}

func testLimitOrder(t *testing.T, opener Opener) {
	s := opener.open(t)
	spend := []*ktmsv1.SpendLimit{
		spendLimit("key", "*", "month", 1), spendLimit("key", "B", "day", 2), spendLimit("key", "a", "day", 3),
		spendLimit("key", "a", "month", 4), spendLimit("key", "a-b", "day", 5), spendLimit("key", "aB", "day", 6),
		spendLimit("user", "*", "day", 7), spendLimit("user", "é", "day", 8),
	}
	users := []*ktmsv1.UserRateLimit{
		userLimit("*", "*", 1, 0), userLimit("*", "gpt", 2, 0), userLimit("B", "z", 3, 0), userLimit("a", "*", 4, 0),
		userLimit("a", "Z", 5, 0), userLimit("a", "b", 6, 0), userLimit("a-b", "a", 7, 0), userLimit("é", "a", 8, 0),
	}
	for _, i := range []int{5, 0, 7, 2, 6, 1, 4, 3} {
		putSpendLimits(t, s, spend[i])
		putUserLimits(t, s, users[i])
	}
	wantLimits(t, s, spend, users)
}

func testLimitStays(t *testing.T, opener Opener) {
	s := opener.open(t)
	key := newKey("key")
	insertKeys(t, s, key)
	putModels(t, s, &ktmsv1.ModelSpec{Id: "gpt"})
	ofKey, ofUser := spendLimit("key", "key", "day", 5), userLimit("u", "gpt", 1, 0)
	putSpendLimits(t, s, ofKey)
	putUserLimits(t, s, ofUser)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.RevokeKey(ctx, key.ID, noon); err != nil {
			return err
		}
		return tx.DeleteModel(ctx, "gpt")
	})
	wantLimits(t, s, []*ktmsv1.SpendLimit{ofKey}, []*ktmsv1.UserRateLimit{ofUser})
}

// testLimitFeed wants every kind of write to be heard of with its own version, and no key to be asked for anew.
func testLimitFeed(t *testing.T, opener Opener) {
	s := opener.open(t)
	heard := Hear(t, s)
	last := version(t, s)
	for what, change := range []store.Change{
		putSpendLimits(t, s, spendLimit("key", "*", "day", 5)),
		putUserLimits(t, s, userLimit("*", "*", 5, 0)),
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.DeleteSpendLimit(ctx, "key", "*", "day") }),
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.DeleteUserRateLimit(ctx, "*", "*") }),
	} {
		last++
		if change.Version != last || change.All || len(change.KeyHashes) > 0 {
			t.Errorf("write %d is the change %+v, want version %d and no keys", what, change, last)
		}
		wantDelivered(t, heard, change.Version)
	}
	nothing := update(t, s, func(ctx context.Context, tx store.Tx) error {
		wantErr(t, "delete what is gone", tx.DeleteSpendLimit(ctx, "key", "*", "day"), store.ErrNotFound)
		return nil
	})
	if nothing.Version != last {
		t.Errorf("deleting nothing raised the version from %d to %d", last, nothing.Version)
	}
}
