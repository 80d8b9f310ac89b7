package pooltest

import "testing"

var moneyTests = []test{
	{"is neither lost nor made", testMoney},
	{"is missed when a Meter errs", testMoneyFaults},
}

// sequences is how many sequences the suite runs.
const sequences = 200

func testMoney(t *testing.T, opener Opener) {
	clock := NewClock(noon)
	meter := opener.Fresh(t, clock)
	for seed := range int64(sequences) {
		if err := Property(t.Context(), seed, meter, clock); err != nil {
			t.Fatal(err)
		}
	}
}

// testMoneyFaults plants one fault after the other: a property that does not catch them says nothing.
func testMoneyFaults(t *testing.T, opener Opener) {
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			clock := NewClock(noon)
			meter := fault.plant(opener.Fresh(t, clock), clock)
			for seed := range int64(sequences) {
				if err := Property(t.Context(), seed, meter, clock); err != nil {
					t.Log(err)
					return
				}
			}
			t.Errorf("%d sequences did not catch it", sequences)
		})
	}
}
