package admit

import (
	"time"

	"github.com/ai-process/ktms/vendors"
)

// window is a part of each weekday in UTC, from and until in hours.
type window struct{ from, until int }

// peaks are the hours in which vendors charge their peak prices.
//
// DeepSeek: Monday to Friday, by its pricing page of November 2026. Chinese public holidays are exempt there and not
// here: they are announced year by year, and a price that is too high for a day is the smaller mistake.
var peaks = map[string][]window{
	vendors.DeepSeek: {{1, 4}, {6, 10}},
}

// Peak reports whether a vendor charges its peak price for a call that starts at a time.
func Peak(vendor string, at time.Time) bool {
	at = at.UTC()
	if day := at.Weekday(); day == time.Saturday || day == time.Sunday {
		return false
	}
	for _, w := range peaks[vendor] {
		if at.Hour() >= w.from && at.Hour() < w.until {
			return true
		}
	}
	return false
}
