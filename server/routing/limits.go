package routing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/store"
)

// Everyone stands for every subject, user or model without a limit of its own.
const Everyone = "*"

// capped names a row of spend_limits, rated one of user_rate_limits.
type (
	capped struct{ subjectType, subjectID, period string }
	rated  struct{ userID, modelID string }
)

type userRate struct{ rpm, burst int32 }

// addLimits leaves both maps nil when there are no limits, so that lookups end at once.
func (t *Table) addLimits(cfg *store.Config) {
	if n := len(cfg.SpendLimits); n > 0 {
		t.spendCaps = make(map[capped]int64, n)
	}
	for _, l := range cfg.SpendLimits {
		t.spendCaps[capped{l.GetSubjectType(), l.GetSubjectId(), l.GetPeriod()}] = l.GetLimitNanousd()
	}
	if n := len(cfg.UserRateLimits); n > 0 {
		t.userRates = make(map[rated]userRate, n)
	}
	for _, l := range cfg.UserRateLimits {
		t.userRates[rated{l.GetUserId(), l.GetModelId()}] = userRate{l.GetRpm(), l.GetRpmBurst()}
	}
}

// SpendCap is what a key (by name) or a user may spend in a UTC day or month, in nano-USD: by its own row, else by that
// for everyone. 0 is no cap.
func (t *Table) SpendCap(subjectType, subjectID, period string) int64 {
	if t.spendCaps == nil {
		return 0
	}
	if own, found := t.spendCaps[capped{subjectType, subjectID, period}]; found {
		return own
	}
	return t.spendCaps[capped{subjectType, Everyone, period}]
}

// UserRate is how many calls a minute a user may make to a model, by the most specific row: the user and the model, the
// user and any model, anyone and the model, anyone and any model. rpm 0 is no limit, also where it comes from a row, which
// lifts those that are less specific. burst is as stored: 0 means rpm−1, negative none.
func (t *Table) UserRate(userID, modelID string) (rpm, burst int32) {
	if t.userRates == nil {
		return 0, 0
	}
	for _, row := range [...]rated{{userID, modelID}, {userID, Everyone}, {Everyone, modelID}, {Everyone, Everyone}} {
		if r, found := t.userRates[row]; found {
			return r.rpm, r.burst
		}
	}
	return 0, 0
}

// TeamBudget is what all keys of a team may spend together in a UTC month, in nano-USD. 0 is no cap. A team that is newer
// than the table has none yet.
func (t *Table) TeamBudget(teamID string) int64 {
	if tm, found := t.teams[teamID]; found {
		return tm.row.MonthlyBudgetNanoUSD
	}
	return 0
}

// checkLimits reports what a lookup would pass over, so that no limit is stored and then ignored. Whether a model or a key
// of that name exists is not asked: a limit outlives it.
func (c *checker) checkLimits() {
	spend := map[capped]int{}
	for i, l := range c.cfg.SpendLimits {
		path := fmt.Sprintf("spend_limits[%d]", i)
		c.checkWord(path+".subject_type", l.GetSubjectType(), "key", "user")
		c.checkNamed(path+".subject_id", l.GetSubjectId())
		c.checkWord(path+".period", l.GetPeriod(), "day", "month")
		if l.GetLimitNanousd() <= 0 {
			c.add(path+".limit_nanousd", "is %d; a cap must be positive", l.GetLimitNanousd())
		}
		c.checkAmount(path+".limit_nanousd", l.GetLimitNanousd())
		row := capped{l.GetSubjectType(), l.GetSubjectId(), l.GetPeriod()}
		if other, twice := spend[row]; twice {
			c.add(path, "caps %s %q by the %s, as spend_limits[%d] does", row.subjectType, row.subjectID, row.period, other)
		} else {
			spend[row] = i
		}
	}
	users := map[rated]int{}
	for i, l := range c.cfg.UserRateLimits {
		path := fmt.Sprintf("user_rate_limits[%d]", i)
		c.checkNamed(path+".user_id", l.GetUserId())
		c.checkNamed(path+".model_id", l.GetModelId())
		if l.GetRpm() < 0 {
			c.add(path+".rpm", "is %d; it must be positive, or 0 for no limit", l.GetRpm())
		}
		row := rated{l.GetUserId(), l.GetModelId()}
		if other, twice := users[row]; twice {
			c.add(path, "is for user %q and model %q, as user_rate_limits[%d] is", row.userID, row.modelID, other)
		} else {
			users[row] = i
		}
	}
	for i, t := range c.cfg.Teams {
		path := fmt.Sprintf("teams[%d].monthly_budget_usd", i)
		if t.MonthlyBudgetNanoUSD < 0 {
			c.add(path, "is negative; it must be positive, or 0 for no cap")
		}
		c.checkAmount(path, t.MonthlyBudgetNanoUSD)
	}
}

func (c *checker) checkNamed(path, name string) {
	if name == "" {
		c.add(path, "is empty; %s stands for all", Everyone)
	}
}

func (c *checker) checkWord(path, word string, known ...string) {
	if !slices.Contains(known, word) {
		c.add(path, "is %q; it must be %s", word, strings.Join(known, " or "))
	}
}

func (c *checker) checkAmount(path string, nanoUSD int64) {
	if nanoUSD > pool.MaxAmount {
		c.add(path, "is %d nano-USD; spend is counted exactly up to %d", nanoUSD, int64(pool.MaxAmount))
	}
}
