package selection_test

import (
	"math"
	"testing"

	"github.com/ai-process/ktms/pool/selection"
)

func TestPace(t *testing.T) {
	t.Parallel()
	var p selection.Pace
	for i, step := range []struct {
		ttft   float64
		tokens int64
		want   selection.Pace
	}{
		{2, 1000, 0.002},             // the first one is believed
		{12, 1000, 0.003},            // a tenth of the difference
		{0.192, 1, 0.003},            // short prompts count as 64 tokens
		{0, 1000, 0.003},             // says nothing
		{math.NaN(), 1000, 0.003},    // says nothing
		{math.Inf(1), 1000, 0.003},   // says nothing
		{0.0, -5, 0.003},             // says nothing
		{0.003 * 500, 500, 0.003},    // as expected
		{0.003 * 5000, 5000, 0.0030}, // as expected
	} {
		if p = p.Learn(step.ttft, step.tokens); math.Abs(float64(p-step.want)) > 1e-12 {
			t.Fatalf("step %d: %v, want %v", i, p, step.want)
		}
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		line selection.Line
		want float64
	}{
		"a slot is free":              {selection.Line{Slots: 10, Occupied: 9, ServiceSeconds: 5}, 0},
		"the free slot is spoken for": {selection.Line{Slots: 10, Occupied: 9, Waiting: 1, ServiceSeconds: 5}, 1},
		"next in line":                {selection.Line{Slots: 10, Occupied: 10, ServiceSeconds: 5}, 0.5},
		"three ahead":                 {selection.Line{Slots: 10, Occupied: 10, Waiting: 3, ServiceSeconds: 5}, 2},
		"foreign load on top":         {selection.Line{Slots: 10, Occupied: 12, Waiting: 3, ServiceSeconds: 5}, 2},
		"nothing measured yet":        {selection.Line{Slots: 10, Occupied: 10}, 0},
		"no slots at all":             {selection.Line{}, math.Inf(1)},
	} {
		if got := test.line.Wait(); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
