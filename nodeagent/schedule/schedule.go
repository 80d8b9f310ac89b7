// Package schedule tells how much of its time a node gives to requests, from a file of rules in local time.
package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// Full is the level of uncovered time.
	Full = 100

	dayMinutes  = 24 * 60
	weekMinutes = 7 * dayMinutes
	// horizon is how far Next looks. A week repeats, but a switch to summer time may skip a window of the first.
	horizon = 15 * dayMinutes

	// byteOrderMark begins a file that an editor on Windows wrote.
	byteOrderMark = "\ufeff"
)

var days = [7]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// Schedule is a week of levels, by the minutes that a clock on the wall shows: when an hour comes twice its level comes
// twice, and of a window that falls into a skipped hour nothing remains. nil is a schedule without rules.
type Schedule struct {
	levels [weekMinutes]uint8
	// zone is where the clock hangs; nil is the zone of the time that is asked for.
	zone *time.Location
}

// Parse reads rules, one per line: [days] HH:MM-HH:MM level. The error names every line that is wrong.
func Parse(text string) (*Schedule, error) {
	s := &Schedule{}
	for i := range s.levels {
		s.levels[i] = Full
	}
	var owner [weekMinutes]int // the line of the rule that covers a minute
	var wrong []error
	number := 0
	text = strings.TrimPrefix(text, byteOrderMark)
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		r, err := parseRule(strings.Fields(line))
		if err != nil {
			wrong = append(wrong, fmt.Errorf("line %d: %w", number, err))
			continue
		}
		if other := r.claim(&owner, number); other != 0 {
			wrong = append(wrong, fmt.Errorf("line %d overlaps line %d: give each time to one rule", number, other))
			continue
		}
		r.each(func(minute int) { s.levels[minute] = r.level })
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	return s, nil
}

// rule is one line: the window begins on each of the days, and ends length minutes later.
type rule struct {
	days          [7]bool
	start, length int
	level         uint8
}

// each visits the minutes of the week that the rule covers.
func (r rule) each(visit func(minute int)) {
	for day, begins := range r.days {
		if begins {
			for m := range r.length {
				visit((day*dayMinutes + r.start + m) % weekMinutes)
			}
		}
	}
}

// claim enters the rule's line where no rule was before, or returns the line of one that was.
func (r rule) claim(owner *[weekMinutes]int, line int) (other int) {
	r.each(func(minute int) {
		if owner[minute] != 0 {
			other = owner[minute]
		}
	})
	if other == 0 {
		r.each(func(minute int) { owner[minute] = line })
	}
	return other
}

func parseRule(fields []string) (rule, error) {
	r := rule{days: [7]bool{true, true, true, true, true, true, true}}
	if len(fields) == 3 {
		var err error
		if r.days, err = parseDays(fields[0]); err != nil {
			return r, err
		}
		fields = fields[1:]
	}
	if len(fields) != 2 {
		return r, errors.New("write a rule as [days] HH:MM-HH:MM level, like: mon-fri 10:00-23:00 0")
	}
	from, to, found := strings.Cut(fields[0], "-")
	if !found {
		return r, fmt.Errorf("%q is no window: write it as HH:MM-HH:MM", fields[0])
	}
	start, err := parseTime(from)
	if err != nil {
		return r, err
	}
	end, err := parseTime(to)
	if err != nil {
		return r, err
	}
	switch {
	case start == dayMinutes:
		return r, errors.New("24:00 ends a day and begins none: write 00:00")
	case start == end:
		return r, fmt.Errorf("the window %s is empty: write the whole day as 00:00-24:00", fields[0])
	case end < start:
		end += dayMinutes
	}
	r.start, r.length = start, end-start
	level, err := strconv.ParseUint(fields[1], 10, 8)
	if err != nil || level > Full {
		return r, fmt.Errorf("%q is no level: write a whole number from 0 to 100", fields[1])
	}
	r.level = uint8(level)
	return r, nil
}

// parseTime reads HH:MM as minutes of the day, up to 24:00.
func parseTime(text string) (int, error) {
	if len(text) == 5 && text[2] == ':' {
		hour, err1 := strconv.ParseUint(text[:2], 10, 8)
		minute, err2 := strconv.ParseUint(text[3:], 10, 8)
		if total := int(hour*60 + minute); err1 == nil && err2 == nil && minute < 60 && total <= dayMinutes {
			return total, nil
		}
	}
	return 0, fmt.Errorf("%q is no time: write it as HH:MM, from 00:00 to 24:00", text)
}

// parseDays reads a list of days and ranges of days, which may run past the end of the week.
func parseDays(text string) (set [7]bool, err error) {
	for part := range strings.SplitSeq(strings.ToLower(text), ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, last := dayIndex(from), dayIndex(to)
		if first < 0 || last < 0 {
			return set, fmt.Errorf("%q names no days: write mon to sun, ranges like mon-fri, lists like sat,sun", text)
		}
		for d := first; ; d = (d + 1) % 7 {
			set[d] = true
			if d == last {
				break
			}
		}
	}
	return set, nil
}

func dayIndex(name string) int {
	for i, d := range days {
		if d == name {
			return i
		}
	}
	return -1
}

// local is a time on the schedule's clock.
func (s *Schedule) local(t time.Time) time.Time {
	if s.zone == nil {
		return t
	}
	return t.In(s.zone)
}

// Level is the level at a time: 0 to 100. A schedule from a file that is followed goes by the machine's zone, and any
// other by the time's own.
func (s *Schedule) Level(t time.Time) int {
	if s == nil {
		return Full
	}
	t = s.local(t)
	hour, minute, _ := t.Clock()
	return int(s.levels[int(t.Weekday())*dayMinutes+hour*60+minute])
}

// Switch is a change of the level.
type Switch struct {
	At    time.Time
	Level int
}

// Next is the first change after a time; false where the level stays.
func (s *Schedule) Next(t time.Time) (Switch, bool) {
	if s == nil {
		return Switch{}, false
	}
	now := s.Level(t)
	// Zones are whole minutes apart, so levels change at whole minutes alone.
	at := s.local(t).Truncate(time.Minute)
	for range horizon {
		at = at.Add(time.Minute)
		if level := s.Level(at); level != now {
			return Switch{at, level}, true
		}
	}
	return Switch{}, false
}

// OpensWithin reports whether the level rises above 0 no later than d after t.
func (s *Schedule) OpensWithin(t time.Time, d time.Duration) bool {
	for at := t; at.Before(t.Add(d)); at = at.Add(time.Minute) {
		if s.Level(at) > 0 {
			return true
		}
	}
	return s.Level(t.Add(d)) > 0
}

// Describe says the level at a time and the next switch: "now 0%, next 23:00 100%".
func (s *Schedule) Describe(t time.Time) string {
	text := fmt.Sprintf("now %d%%, ", s.Level(t))
	next, found := s.Next(t)
	switch {
	case !found:
		return text + "no switch"
	case next.At.Sub(t) < 24*time.Hour:
		return text + fmt.Sprintf("next %s %d%%", next.At.Format("15:04"), next.Level)
	default:
		return text + fmt.Sprintf("next %s %s %d%%", days[next.At.Weekday()], next.At.Format("15:04"), next.Level)
	}
}
