package admit

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors"
)

// What limits are set for, as ktms.v1 spells it.
const (
	SubjectKey  = "key"
	SubjectUser = "user"
	SubjectTeam = "team"
	PeriodDay   = "day"
	PeriodMonth = "month"
)

// ServicePrefix begins the subject of calls that name no user. No caller may name a user of that kind: it would be
// counted on another key's calls.
const ServicePrefix = "svc:"

// User is the subject of the limits per user: the user that the request names, else the service itself.
func User(userID, keyName string) string {
	if userID != "" {
		return userID
	}
	return ServicePrefix + keyName
}

// spendReasons are the refusals of each spend limit.
var spendReasons = map[[2]string]status.Reason{
	{SubjectKey, PeriodDay}:    status.SpendKeyDaily,
	{SubjectKey, PeriodMonth}:  status.SpendKeyMonthly,
	{SubjectUser, PeriodDay}:   status.SpendUserDaily,
	{SubjectUser, PeriodMonth}: status.SpendUserMonthly,
	{SubjectTeam, PeriodMonth}: status.SpendTeamMonthly,
}

// maxName is the longest subject that stands in a counter's key as it is; callers choose user ids.
const maxName = 64

// name shortens what callers make up.
func name(s string) string {
	if len(s) <= maxName {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + hex.EncodeToString(sum[:16])
}

// spendCharge is the counter of one spend limit.
func spendCharge(subjectType, subjectID, period string, limit, amount int64) pool.Charge {
	span := pool.Day
	if period == PeriodMonth {
		span = pool.Month
	}
	return pool.Charge{Key: pool.Key("spend", subjectType, period, name(subjectID)), Amount: amount,
		Reason: string(spendReasons[[2]string{subjectType, period}]), Window: pool.Window{Limit: limit, Span: span}}
}

// spendCap is the limit on a subject's spend in a period; 0 is none. There is none on a team's day.
func spendCap(l Limits, subjectType, subjectID, period string) int64 {
	if subjectType != SubjectTeam {
		return l.SpendCap(subjectType, subjectID, period)
	}
	if period == PeriodMonth && subjectID != "" {
		return l.TeamBudget(subjectID)
	}
	return 0
}

// perMinute is a rate that is set per minute. As in the catalogue, a burst of 0 stands for a whole minute's worth at once,
// and a negative one for none.
func perMinute(limit, burst int64) pool.Rate {
	switch {
	case burst == 0:
		burst = limit - 1
	case burst < 0:
		burst = 0
	}
	return pool.Rate{Limit: limit, Per: time.Minute, Burst: burst}
}

// callCharges are those of the whole call, whatever models it tries: the key's own rates.
func (a *Account) callCharges(into []pool.Charge) []pool.Charge {
	who := a.call.Caller
	if limit := int64(who.RPMLimit); limit > 0 {
		into = add(into, pool.Charge{Key: pool.Key("key_rpm", who.KeyName), Reason: string(status.ThrottledKeyRPM),
			Amount: 1, Rate: perMinute(limit, 0)})
	}
	if who.TPMLimit > 0 {
		into = add(into, pool.Charge{Key: pool.Key("key_tpm", who.KeyName), Reason: string(status.ThrottledKeyTPM),
			Amount: amount(a.call.Input()), Rate: perMinute(who.TPMLimit, 0)})
	}
	return into
}

// rateOf begins the keys of a model's rates, for a key or a user.
const rateOf = "rpm"

// rateCharges are those of one model's rates, for the key and for the user.
func (a *Account) rateCharges(into []pool.Charge, m *ktmsv1.ModelSpec) []pool.Charge {
	if rpm := m.GetRpm(); rpm > 0 {
		into = add(into, pool.Charge{Key: pool.Key(rateOf, SubjectKey, a.call.Caller.KeyName, m.GetId()),
			Reason: string(status.ThrottledRPM), Amount: 1, Rate: perMinute(int64(rpm), int64(m.GetRpmBurst()))})
	}
	if rpm, burst := a.call.Limits.UserRate(a.user(), m.GetId()); rpm > 0 {
		into = add(into, pool.Charge{Key: pool.Key(rateOf, SubjectUser, name(a.user()), m.GetId()),
			Reason: string(status.ThrottledRPM), Amount: 1, Rate: perMinute(int64(rpm), int64(burst))})
	}
	return into
}

// budgetCharges are those of one model's daily tokens. What is booked is the prompt, and the answer where the caller
// bounded it: who bounds nothing is stopped by what earlier calls came to, and the grace is for that.
func (a *Account) budgetCharges(into []pool.Charge, m *ktmsv1.ModelSpec) []pool.Charge {
	for _, budget := range [...]struct {
		limit         int64
		kind, subject string
		reason        status.Reason
	}{
		{m.GetDailyTokensPerKey(), SubjectKey, a.call.Caller.KeyName, status.BudgetKey},
		{m.GetDailyTokensPerUser(), SubjectUser, a.user(), status.BudgetUser},
	} {
		if budget.limit > 0 {
			into = add(into, pool.Charge{Key: pool.Key("tokens", budget.kind, name(budget.subject), m.GetId()),
				Reason: string(budget.reason), Amount: amount(a.call.Input() + a.allowed(m.GetMaxOutputTokens())),
				Window: pool.Window{Limit: budget.limit, Grace: a.c.grace(budget.limit), Span: pool.Day}})
		}
	}
	return into
}

// spendCharges are those of the spend limits. What costs nothing is not held to them: a model of one's own goes on when
// the money is spent.
func (a *Account) spendCharges(into []pool.Charge, m *ktmsv1.ModelSpec, target vendors.Target) []pool.Charge {
	worst := int64(-1)
	for _, subject := range [...]struct{ kind, id string }{
		{SubjectKey, a.call.Caller.KeyName}, {SubjectUser, a.user()}, {SubjectTeam, a.call.Caller.TeamID},
	} {
		for _, period := range [...]string{PeriodDay, PeriodMonth} {
			limit := spendCap(a.call.Limits, subject.kind, subject.id, period)
			if limit <= 0 {
				continue
			}
			if worst < 0 {
				if !Priced(m) {
					return into
				}
				worst = amount(Worst(m, a.call.Input(), a.output(target), a.call.LongCache, a.c.options.Now()))
			}
			into = add(into, spendCharge(subject.kind, subject.id, period, limit, worst))
		}
	}
	return into
}

// Priced reports whether the catalogue has prices for a model.
func Priced(m *ktmsv1.ModelSpec) bool {
	return m.GetPriceInPerMtok() > 0 || m.GetPriceOutPerMtok() > 0 || m.GetPriceInPeakPerMtok() > 0 ||
		m.GetPriceOutPeakPerMtok() > 0 || len(m.GetPriceTiers()) > 0
}

// mostCharges is how many counters one attempt can have: two of the key, two rates, two budgets, five spend limits.
const mostCharges = 11

// add is append with room for all that may come.
func add(into []pool.Charge, c pool.Charge) []pool.Charge {
	if into == nil {
		into = make([]pool.Charge, 0, mostCharges)
	}
	return append(into, c)
}

// grace is how much of a budget may be overdrawn.
func (c *Controller) grace(limit int64) int64 {
	if !(c.options.Grace > 0) {
		return 0
	}
	return int64(min(math.Floor(float64(limit)*c.options.Grace), math.MaxInt64/2))
}

// amount is what counters can count.
func amount(n int64) int64 { return min(max(n, 0), pool.MaxAmount) }
