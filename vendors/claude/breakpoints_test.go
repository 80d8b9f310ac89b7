package claude

import (
	"strings"
	"testing"
)

// places reads "555|1-5": breakpoints of five minutes and of an hour, those of the head before the bar.
func places(text string) []Place {
	var out []Place
	head, rest, _ := strings.Cut(text, "|")
	for i, r := range head + rest {
		out = append(out, Place{Head: i < len(head), Set: map[rune]Lifetime{'5': FiveMinutes, '1': Hour}[r]})
	}
	return out
}

func written(places []Place) string {
	var out strings.Builder
	for _, p := range places {
		out.WriteString([]string{"-", "5", "1"}[p.Set])
	}
	return out.String()
}

func TestTrim(t *testing.T) {
	for _, c := range []struct {
		given, want string
		dropped     bool
	}{
		{"|", "", false}, {"5-1|", "5--", true}, {"1|5", "15", false}, {"|51", "5-", true},
		{"|555555", "--5555", true}, {"55|555", "55-55", true}, {"11|5555", "11--55", true},
		{"555555|", "--5555", true}, {"55555|5", "--5555", true}, {"5|5-5-5-5", "5--5-5-5", true}, {"5555|", "5555", false},
	} {
		p := places(c.given)
		if dropped := Trim(p); written(p) != strings.ReplaceAll(c.want, "|", "") || dropped != c.dropped {
			t.Errorf("%s: %s %v", c.given, written(p), dropped)
		}
	}
}

func TestAdd(t *testing.T) {
	for _, c := range []struct {
		given  string
		wanted []int
		want   string
	}{
		{"--|--", []int{3, 1, 0}, "55-5"}, {"--|555-", []int{5, 1}, "--5555"}, {"-|1--", []int{3, 0}, "-1-5"},
		{"-|-", []int{-1, 9, 1}, "-5"}, {"5|555", []int{0, 1}, "5555"},
	} {
		p := places(c.given)
		if Add(p, c.wanted...); written(p) != c.want {
			t.Errorf("%+v: %s", c, written(p))
		}
	}
}
