package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones, wherever the test runs
)

const manual = `# the manual's example
23:00-07:00 100
07:00-10:00 50
mon-fri 10:00-23:00 0
`

func parse(t *testing.T, text string) *Schedule {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func in(t *testing.T, zone, local string) time.Time {
	t.Helper()
	location, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.ParseInLocation("2006-01-02 15:04", local, location)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestLevel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rules, at string
		want      int
	}{
		{manual, "2026-11-30 09:59", 50}, // a Monday
		{manual, "2026-11-30 10:00", 0},
		{manual, "2026-11-30 22:59", 0},
		{manual, "2026-11-30 23:00", 100},
		{manual, "2026-12-05 12:00", 100}, // a Saturday, uncovered
		{manual, "2026-12-05 07:00", 50},
		{"", "2026-11-30 12:00", 100},
		{"fri 22:00-06:00 10", "2026-12-04 21:59", 100},
		{"fri 22:00-06:00 10", "2026-12-04 22:00", 10},
		{"fri 22:00-06:00 10", "2026-12-05 05:59", 10}, // the window belongs to Friday
		{"fri 22:00-06:00 10", "2026-12-05 06:00", 100},
		{"fri 22:00-06:00 10", "2026-12-04 05:00", 100}, // Thursday's night has none
		{"sat 22:00-06:00 10", "2026-12-06 03:00", 10},  // past the end of the week
		{"20:00-24:00 1", "2026-11-30 23:59", 1},
		{"20:00-24:00 1", "2026-12-01 00:00", 100},
		{"20:00-00:00 1", "2026-11-30 23:59", 1},
		{"20:00-00:00 1", "2026-12-01 00:00", 100},
		{"00:00-24:00 7", "2026-12-01 00:00", 7},
		{"fri-mon 00:00-24:00 7", "2026-12-06 12:00", 7}, // over the weekend
		{"fri-mon 00:00-24:00 7", "2026-12-08 12:00", 100},
		{"SAT,Sun 00:00-24:00 7", "2026-12-05 12:00", 7},
		{"mon,wed-thu 00:00-24:00 7 # busy", "2026-12-03 12:00", 7},
		{"mon,wed-thu 00:00-24:00 7", "2026-12-01 12:00", 100},
		{"00:00-12:00 1\r\n12:00-24:00 2\r\n", "2026-12-01 12:00", 2},
		{"\ufeff00:00-24:00 3", "2026-12-01 12:00", 3}, // as Windows' editor saves it
		{"\ufeff# a comment\r\n\r\n", "2026-12-01 12:00", 100},
		{"   \t\n\n#\n", "2026-12-01 12:00", 100},
		{"mon-sun 00:00-24:00 4", "2026-12-06 12:00", 4},
		{"sun-mon 00:00-24:00 4", "2026-12-05 12:00", 100},
		{"sat 12:00-11:59 1", "2026-12-06 11:58", 1}, // as long as a window can be
		{"sat 12:00-11:59 1", "2026-12-06 11:59", 100},
	} {
		if got := parse(t, c.rules).Level(in(t, "UTC", c.at)); got != c.want {
			t.Errorf("%q at %s: %d, want %d", c.rules, c.at, got, c.want)
		}
	}
	if got := (*Schedule)(nil).Level(time.Now()); got != 100 {
		t.Errorf("without a schedule: %d", got)
	}
}

func TestWrongRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rules, want string }{
		{"10:00-12:00", "line 1: write a rule as"},
		{"a b c d", "line 1: write a rule as"},
		{"10:00 50", "no window"},
		{"10:00-12:60 50", `"12:60" is no time`},
		{"1:00-12:00 50", `"1:00" is no time`},
		{"+1:00-12:00 50", "is no time"},
		{"10:00-24:01 50", "is no time"},
		{"24:00-01:00 50", "begins none"},
		{"10:00-10:00 50", "is empty"},
		{"10:00-12:00 101", "is no level"},
		{"10:00-12:00 -1", "is no level"},
		{"10:00-12:00 50%", "is no level"},
		{"10:00-12:00 0.5", "is no level"},
		{"may 10:00-12:00 5", "names no days"},
		{"mon- 10:00-12:00 5", "names no days"},
		{"mon,,tue 10:00-12:00 5", "names no days"},
		{"10:00-12:00 5\n\n# x\n11:00-13:00 6", "line 4 overlaps line 1"},
		{"mon 22:00-04:00 5\ntue 03:00-05:00 6", "line 2 overlaps line 1"},
		{"sat 22:00-04:00 5\nsun 03:00-05:00 6", "line 2 overlaps line 1"},
		{"10:00-12:00 5\n10:00-12:00 5", "line 2 overlaps line 1"},
		{"x\ny", "line 1: write a rule as [days] HH:MM-HH:MM level, like: mon-fri 10:00-23:00 0\nline 2:"},
	} {
		_, err := Parse(c.rules)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.rules, err, c.want)
		}
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zone, rules, at, want string
	}{
		{"UTC", manual, "2026-11-30 12:34", "2026-11-30 23:00 +0000 100"},
		{"UTC", manual, "2026-11-30 23:00", "2026-12-01 07:00 +0000 50"},
		{"UTC", manual, "2026-12-05 10:00", "2026-12-06 07:00 +0000 50"}, // Saturday's uncovered day runs into the night
		{"UTC", "", "2026-11-30 12:34", "never"},
		{"UTC", "00:00-24:00 100", "2026-11-30 12:34", "never"},
		{"UTC", "mon 00:00-12:00 0", "2026-11-30 12:00", "2026-12-07 00:00 +0000 0"},
		{"Asia/Kathmandu", manual, "2026-11-30 12:34", "2026-11-30 23:00 +0545 100"},

		// Summer time begins: the clock goes from 02:00 to 03:00.
		{"Europe/Berlin", "01:30-03:30 0", "2027-03-28 01:00", "2027-03-28 01:30 +0100 0"},
		{"Europe/Berlin", "01:30-03:30 0", "2027-03-28 01:30", "2027-03-28 03:30 +0200 100"},
		{"Europe/Berlin", "02:00-03:00 0", "2027-03-28 01:00", "2027-03-29 02:00 +0200 0"}, // the hour does not exist
		{"Europe/Berlin", "sun 02:00-03:00 0", "2027-03-21 12:00", "2027-04-04 02:00 +0200 0"},
		{"Europe/Berlin", "00:00-02:30 0", "2027-03-28 01:00", "2027-03-28 03:00 +0200 100"},
		{"America/New_York", "23:00-07:00 0", "2027-03-14 01:00", "2027-03-14 07:00 -0400 100"},
		{"Australia/Lord_Howe", "02:15-05:00 0", "2026-10-04 01:00", "2026-10-04 02:30 +1100 0"},   // half an hour
		{"America/Sao_Paulo", "sun 00:00-06:00 0", "2018-11-03 12:00", "2018-11-04 01:00 -0200 0"}, // at midnight

		// Summer time ends: the clock goes from 03:00 back to 02:00, and that hour comes twice.
		{"Europe/Berlin", "02:15-02:45 0", "2026-10-25 01:00", "2026-10-25 02:15 +0200 0"},
		{"Europe/Berlin", "00:00-02:30 0", "2026-10-25 01:00", "2026-10-25 02:30 +0200 100"},
		{"Europe/Berlin", "02:30-04:00 0", "2026-10-25 01:00", "2026-10-25 02:30 +0200 0"},
		{"America/New_York", "23:00-07:00 0", "2026-11-01 00:30", "2026-11-01 07:00 -0500 100"},
		{"Australia/Lord_Howe", "01:45-05:00 0", "2027-04-04 00:00", "2027-04-04 01:45 +1100 0"},
		{"America/Sao_Paulo", "sat 22:00-06:00 0", "2018-02-17 23:59", "2018-02-18 06:00 -0300 100"},
	} {
		got := "never"
		if next, found := parse(t, c.rules).Next(in(t, c.zone, c.at)); found {
			got = fmt.Sprintf("%s %d", next.At.Format("2006-01-02 15:04 -0700"), next.Level)
		}
		if got != c.want {
			t.Errorf("%s, %q at %s: %s, want %s", c.zone, c.rules, c.at, got, c.want)
		}
	}
}

// TestRepeatedHour gives the hour that comes twice its level twice.
func TestRepeatedHour(t *testing.T) {
	t.Parallel()
	s := parse(t, "02:15-02:45 0")
	first := in(t, "UTC", "2026-10-25 00:15").In(in(t, "Europe/Berlin", "2026-10-25 00:00").Location())
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 0}, {30 * time.Minute, 100}, {59 * time.Minute, 100}, {time.Hour, 0}, {90 * time.Minute, 100}} {
		if at := first.Add(c.after); s.Level(at) != c.want {
			t.Errorf("at %s: %d, want %d", at, s.Level(at), c.want)
		}
	}
	next, found := s.Next(first.Add(45 * time.Minute))
	if want := first.Add(time.Hour); !found || !next.At.Equal(want) {
		t.Errorf("next at %s, want the second 02:15 at %s", next.At, want)
	}
}

func TestOpensWithin(t *testing.T) {
	t.Parallel()
	s := parse(t, "10:00-23:00 0\n23:00-23:01 0\n23:01-23:30 5")
	for _, c := range []struct {
		at   string
		want bool
	}{{"12:00", false}, {"22:55", false}, {"22:56", true}, {"23:00", true}, {"09:00", true}} {
		if got := s.OpensWithin(in(t, "UTC", "2026-11-30 "+c.at), 5*time.Minute); got != c.want {
			t.Errorf("at %s: %v, want %v", c.at, got, c.want)
		}
	}
	if !(*Schedule)(nil).OpensWithin(time.Now(), 0) {
		t.Error("a node without a schedule is not open")
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rules, at, want string }{
		{manual, "2026-11-30 12:00", "now 0%, next 23:00 100%"},
		{"mon 00:00-12:00 0", "2026-11-30 12:00", "now 100%, next mon 00:00 0%"},
		{"00:00-24:00 30", "2026-11-30 12:00", "now 30%, no switch"},
	} {
		if got := parse(t, c.rules).Describe(in(t, "UTC", c.at)); got != c.want {
			t.Errorf("%q: %q, want %q", c.rules, got, c.want)
		}
	}
}

// FuzzParse holds that a schedule is valid or says why not, and that its switches are switches.
func FuzzParse(f *testing.F) {
	for _, text := range []string{manual, "", "mon 24:00-00:00 1", "sat 23:59-00:00 0", "x-y,z 00:00-00:01 100", "\x00"} {
		f.Add(text, int64(1_790_000_000))
	}
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string, unix int64) {
		s, err := Parse(text)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a word")
			}
			return
		}
		at := time.Unix(unix%(1<<32), 0).In(zone)
		if level := s.Level(at); level < 0 || level > 100 {
			t.Errorf("level %d", level)
		}
		if next, found := s.Next(at); found {
			if !next.At.After(at) || s.Level(next.At) != next.Level || s.Level(next.At.Add(-time.Minute)) == next.Level {
				t.Errorf("%q at %s: %s %d is no switch", text, at, next.At, next.Level)
			}
		}
	})
}
