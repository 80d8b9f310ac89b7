package redis

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/pool/pooltest"
)

// mostSteps bounds an input, so that no sum of its amounts exceeds what float64 counts exactly.
const mostSteps = 100

// FuzzMeter makes of each input a series of calls, puts it to memory and to Redis on one clock, and compares every
// answer. Each counter of the table is used with the amounts, and at the edges, at which such a sum goes wrong.
func FuzzMeter(f *testing.F) {
	for _, seed := range fuzzSeeds() {
		f.Add(seed)
	}
	pair := newPair(f)
	f.Fuzz(pair.compare)
}

// TestRandomCalls does the same with inputs from a die. Coverage cannot lead the fuzzer into a script.
func TestRandomCalls(t *testing.T) {
	pair := newPair(t)
	die := rand.NewChaCha8([32]byte{})
	for n := range 400 {
		input := make([]byte, 600)
		die.Read(input)
		t.Run(strconv.Itoa(n), func(t *testing.T) { pair.compare(t, input) })
		if t.Failed() {
			return
		}
	}
}

// pair is a Redis and the clock that it shares with each input's memory.
type pair struct {
	clock           *pooltest.Clock
	redis           pool.Meter
	address, prefix string
	runs            int
}

func newPair(t testing.TB) *pair {
	p := &pair{clock: pooltest.NewClock(time.Time{}), address: pooltest.Redis(t), prefix: pooltest.Prefix(t)}
	p.redis = open(t, Options{Addr: p.address, KeyPrefix: p.prefix, Timeout: patience, Now: p.clock.Now}).Meter()
	return p
}

func (p *pair) compare(t *testing.T, input []byte) {
	p.runs++
	p.clock.Set(time.Date(2027, 2, 28, 23, 59, 50, 123456000, time.UTC))
	c := &comparison{
		T: t, input: input, clock: p.clock, redis: p.redis, memory: memory.New(memory.Options{Now: p.clock.Now}),
		charges: fuzzCharges(strconv.Itoa(p.runs)), name: strconv.Itoa(p.runs),
	}
	c.back = c.next()%4 == 0
	for step := 0; step < mostSteps && len(c.input) > 0; step++ {
		c.step()
	}
	c.read(c.charges)
	if _, err := pooltest.Command(p.address, "EVAL",
		`for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('UNLINK', key) end`, "0", "{"+p.prefix+"*"); err != nil {
		t.Fatal(err)
	}
}

// fuzzCharges are the counters of one input: rates that are slow, uneven, fast and enormous, then windows.
func fuzzCharges(run string) []pool.Charge {
	charges := []pool.Charge{
		{Rate: pool.Rate{Limit: 1, Per: time.Minute}},
		{Rate: pool.Rate{Limit: 7, Per: time.Minute, Burst: 6}},
		{Rate: pool.Rate{Limit: 60, Per: time.Minute, Burst: -1}},
		{Rate: pool.Rate{Limit: 100_000, Per: time.Minute, Burst: 99_999}},
		{Rate: pool.Rate{Limit: 1 << 50, Per: time.Hour, Burst: 1 << 51}},
		{Window: pool.Window{Limit: 5, Span: pool.Span(5 * time.Second)}},
		{Window: pool.Window{Limit: 1000, Grace: 100, Span: pool.Day}},
		{Window: pool.Window{Limit: 1 << 44, Span: pool.Month}},
		{Window: pool.Window{Limit: math.MaxInt64, Grace: math.MaxInt64, Span: pool.Month}},
		{Window: pool.Window{Limit: 0, Span: pool.Day}},
	}
	for i := range charges {
		charges[i].Key, charges[i].Reason = pool.Key(run, strconv.Itoa(i)), "counter "+strconv.Itoa(i)
	}
	return charges
}

// comparison reads an input and asks both.
type comparison struct {
	*testing.T
	input         []byte
	clock         *pooltest.Clock
	redis, memory pool.Meter
	charges       []pool.Charge
	name          string
	attempts      []pool.Renewal
	ids           int
	// back lets the clock go back, by seconds: further back it would depend on who has looked meanwhile which ids are
	// forgotten.
	back bool
}

// next is the next byte of the input; zeros follow its end.
func (c *comparison) next() byte {
	if len(c.input) == 0 {
		return 0
	}
	b := c.input[0]
	c.input = c.input[1:]
	return b
}

// amount is small or has any magnitude up to 2^44.
func (c *comparison) amount() int64 {
	b := c.next()
	if b < 128 {
		return int64(b)
	}
	return (int64(c.next()) + 1) << ((b - 128) % 37)
}

// some are the charges that the next bytes choose, each with its amount.
func (c *comparison) some() []pool.Charge {
	var some []pool.Charge
	mask := int(c.next()) | int(c.next())<<8
	for i, charge := range c.charges {
		if mask&(1<<i) != 0 {
			charge.Amount = c.amount()
			some = append(some, charge)
		}
	}
	return some
}

func (c *comparison) newID() pool.ID {
	c.ids++
	return pool.ID(c.name + "-" + strconv.Itoa(c.ids))
}

// attempt is one that was admitted, with some or all of its bookings.
func (c *comparison) attempt() (pool.Renewal, bool) {
	if len(c.attempts) == 0 {
		return pool.Renewal{}, false
	}
	a := c.attempts[int(c.next())%len(c.attempts)]
	if b := c.next(); b%4 == 0 && len(a.Bookings) > 0 {
		from := int(b/4) % len(a.Bookings)
		a.Bookings = a.Bookings[from:]
	}
	return a, true
}

// ttl is from a microsecond to more than any window but the longest.
func (c *comparison) ttl() time.Duration { return time.Microsecond << (c.next() % 38) }

func (c *comparison) step() {
	switch c.next() % 10 {
	case 9:
		if a, found := c.attempt(); found { // once more, and for other amounts perhaps
			c.admit(a.ID, c.ttl(), c.some())
		}
	case 8:
		c.change()
	case 0, 1:
		c.admit(c.newID(), c.ttl(), c.some())
	case 2:
		switch b := c.next(); {
		case !c.back:
			c.clock.Advance(time.Microsecond << (b % 42))
		case b%2 == 0:
			c.clock.Advance(time.Microsecond << (b / 2 % 22))
		default:
			c.clock.Advance(-(time.Microsecond << (b / 2 % 22)))
		}
	case 3:
		if !c.back {
			c.edge(int64(c.next()%3) - 1)
		}
	case 4:
		if a, found := c.attempt(); found {
			actuals := make([]pool.Actual, 0, len(a.Bookings))
			for _, b := range a.Bookings {
				actuals = append(actuals, pool.Actual{Booking: b, Came: c.amount()})
			}
			c.same("settle", c.redis.Settle(c.Context(), a.ID, actuals), c.memory.Settle(c.Context(), a.ID, actuals))
		}
	case 5:
		one, _ := c.attempt()
		other, _ := c.attempt()
		both, ttl := []pool.Renewal{one, other}, c.ttl()
		c.same("renew", c.redis.Renew(c.Context(), both, ttl), c.memory.Renew(c.Context(), both, ttl))
	case 6:
		id := c.newID()
		if a, found := c.attempt(); found && c.next()%2 == 0 {
			id = a.ID // which may have been settled, and is remembered for longer from now on
		}
		some := c.some()
		c.same("debit", c.redis.Debit(c.Context(), id, some), c.memory.Debit(c.Context(), id, some))
	case 7:
		c.read(c.some())
	}
}

// change gives a counter another limit and burst, or grace, which may be the former ones.
func (c *comparison) change() {
	charge := &c.charges[int(c.next())%len(c.charges)]
	if charge.IsRate() {
		charge.Rate.Limit, charge.Rate.Burst = 1+c.amount(), c.amount()-1
	} else {
		charge.Window.Limit, charge.Window.Grace = c.amount(), c.amount()
	}
}

// edge moves the clock to where something is about to change, give or take a microsecond: where the next window begins,
// or where a rate admits again.
func (c *comparison) edge(off int64) {
	charge := c.charges[int(c.next())%len(c.charges)]
	charge.Amount = c.amount()
	var wait time.Duration
	if charge.IsRate() {
		id := c.newID()
		_, err := c.memory.Admit(c.Context(), id, time.Minute, []pool.Charge{charge})
		_, other := c.redis.Admit(c.Context(), id, time.Minute, []pool.Charge{charge})
		c.same("admit", other, err)
		var refusal *pool.Refusal
		if !errors.As(err, &refusal) {
			return
		}
		wait = refusal.Refused[0].RetryAfter
	} else {
		_, end := charge.Window.Span.At(c.clock.Now())
		wait = end.Sub(c.clock.Now())
	}
	if wait += time.Duration(off) * time.Microsecond; wait > 0 {
		c.clock.Advance(wait)
	}
}

func (c *comparison) admit(id pool.ID, ttl time.Duration, charges []pool.Charge) {
	got, gotErr := c.redis.Admit(c.Context(), id, ttl, charges)
	want, wantErr := c.memory.Admit(c.Context(), id, ttl, charges)
	c.same(fmt.Sprintf("admit %+v", charges), gotErr, wantErr)
	if !slices.EqualFunc(got, want, func(a, b pool.Booking) bool {
		return a.Charge == b.Charge && sameStanding(a.Standing, b.Standing) && a.DrainedAt.Equal(b.DrainedAt)
	}) {
		c.Fatalf("admit %+v\n redis: %+v\nmemory: %+v", charges, got, want)
	}
	if wantErr == nil {
		c.attempts = append(c.attempts, pool.Renewal{ID: id, Bookings: want})
	}
}

func (c *comparison) read(charges []pool.Charge) {
	got, gotErr := c.redis.Read(c.Context(), charges)
	want, wantErr := c.memory.Read(c.Context(), charges)
	c.same("read", gotErr, wantErr)
	if !slices.EqualFunc(got, want, sameStanding) {
		c.Fatalf("read %+v\n redis: %+v\nmemory: %+v", charges, got, want)
	}
}

// same compares errors: none, or refusals alike in everything.
func (c *comparison) same(what string, got, want error) {
	c.Helper()
	var gotRefusal, wantRefusal *pool.Refusal
	errors.As(got, &gotRefusal)
	errors.As(want, &wantRefusal)
	if gotRefusal == nil || wantRefusal == nil {
		if got != nil || want != nil {
			c.Fatalf("%s at %s\n redis: %v\nmemory: %v", what, c.clock.Now(), got, want)
		}
		return
	}
	if !slices.EqualFunc(gotRefusal.Refused, wantRefusal.Refused, func(a, b pool.Refused) bool {
		return a.Charge == b.Charge && sameStanding(a.Standing, b.Standing) && a.RetryAfter == b.RetryAfter && a.Never == b.Never
	}) {
		c.Fatalf("%s at %s\n redis: %+v\nmemory: %+v", what, c.clock.Now(), gotRefusal.Refused, wantRefusal.Refused)
	}
}

func sameStanding(a, b pool.Standing) bool {
	return a.Settled == b.Settled && a.Reserved == b.Reserved && a.Remaining == b.Remaining && a.Reset == b.Reset &&
		a.Start.Equal(b.Start)
}

// fuzzSeeds are programs of which each reaches one part: bookings, refusals, edges, leases, ids that come again.
func fuzzSeeds() [][]byte {
	const all0, all1 = 0xff, 0x03 // the mask of every counter
	seeds := [][]byte{
		nil,
		{0, 30, all0, all1},
		{0, 30, all0, all1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 7, all0, all1},
		// One at a time until the small ones refuse, then on past the edges.
		{0, 30, 0x3f, 0, 1, 1, 1, 1, 1, 1, 0, 30, 0x3f, 0, 1, 1, 1, 1, 1, 1, 3, 0, 0, 1, 3, 1, 0, 1, 0, 30, 1, 0, 1, 3, 2, 5, 0, 0, 30, 0x20, 0, 5},
		// A lease that ends and is settled late, and one that is renewed.
		{0, 20, 0xc0, 1, 50, 200, 9, 200, 9, 0, 25, 0xc0, 1, 60, 70, 80, 2, 21, 5, 0, 1, 1, 1, 25, 4, 0, 1, 90, 150, 3, 150, 3, 7, 0xc0, 1},
		// A settlement that comes twice, and a debit under the same id.
		{0, 30, 0x08, 1, 100, 100, 4, 0, 1, 90, 90, 4, 0, 1, 10, 10, 6, 0, 1, 0, 0x08, 1, 5, 5, 2, 36, 6, 0, 1, 0, 0x08, 1, 5, 5, 6, 0, 1, 0, 0x08, 1, 5, 5},
		// Enormous amounts on enormous rates.
		{0, 30, 0x10, 1, 164, 255, 164, 255, 0, 30, 0x10, 1, 164, 255, 164, 255, 4, 0, 1, 164, 255, 164, 255, 3, 0, 4, 164, 0, 30, 0x10, 0, 1},
	}
	for i, seed := range seeds {
		seeds[i] = append([]byte{1}, seed...) // with windows
	}
	return append(seeds,
		// Rates on a clock that goes back and on again.
		[]byte{0, 0, 30, 0x0f, 0, 0, 5, 0, 100, 2, 41, 0, 30, 0x0f, 0, 0, 0, 0, 50, 2, 42, 7, 0x0f, 0, 0, 0, 0, 0},
		// A limit that is lowered, refuses, is settled late under the former one, and raised.
		[]byte{1, 0, 30, 0x08, 0, 135, 200, 8, 3, 9, 9, 0, 30, 0x08, 0, 1, 2, 22, 4, 0, 1, 50, 7, 0x08, 0, 0, 8, 3, 140, 90, 50, 0, 30, 0x08, 0, 9})
}
