package admit

import (
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/server/status"
)

// allow notes, of the rates that an attempt was admitted under, the tightest of each unit.
func (a *Account) allow(bookings []pool.Booking) {
	for _, b := range bookings {
		unit := unitOf(b.Charge)
		if unit == "" {
			continue
		}
		next := allowance(unit, b.Charge, b.Standing)
		found := false
		for i := range a.allowances {
			if have := &a.allowances[i]; have.Unit == unit {
				found = true
				if next.Remaining < have.Remaining {
					*have = next
				}
			}
		}
		if !found {
			a.allowances = append(a.allowances, next)
		}
	}
}

// unitOf is the unit that the headers know a charge by; money is in none.
func unitOf(c pool.Charge) string {
	switch status.Reason(c.Reason) {
	case status.ThrottledRPM, status.ThrottledKeyRPM:
		return status.UnitRequests
	case status.ThrottledKeyTPM, status.BudgetKey, status.BudgetUser:
		return status.UnitTokens
	}
	return ""
}

func allowance(unit string, c pool.Charge, s pool.Standing) status.Allowance {
	limit := c.Window.Limit
	if c.IsRate() {
		limit = c.Rate.Burst + 1 // what is left is counted from there
	}
	return status.Allowance{Unit: unit, Limit: limit, Remaining: s.Remaining, Reset: s.Reset}
}
