package admit

import (
	"math"
	"math/bits"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// A rate is the price of a token in pico-USD: a price of 1 USD per million tokens is a million of them, so that every
// listed price is a whole number and no sum of calls drifts.
type rate = uint64

const (
	picoPerMtok = 1e6 // pico-USD per token for each USD per million tokens
	picoPerNano = 1000
)

// rates price the parts of a call.
type rates struct{ in, out, read, write, write1h rate }

// cacheDefaults are the cache prices of a vendor as multiples of its input price, for models whose own are not known.
// Where a vendor's discount is not known there is none; the catalogue knows better where it has prices.
type cacheDefaults struct{ read, write, write1h float64 }

var (
	defaultCache = map[string]cacheDefaults{
		vendors.Anthropic: {0.1, 1.25, 2},
		vendors.Bedrock:   {0.25, 1.25, 2}, // Claude reads at 0.1 there, Nova at 0.25
	}
	plainCache = cacheDefaults{1, 1, 1}
)

// Mode is how a call was made, as far as prices care.
type Mode int

// The modes.
const (
	Interactive Mode = iota
	Batch
)

// Cost is the price of a call in nano-USD by the model's prices, at the time it started; 0 when the model has none. It
// is rounded once, at the end, to the nearest.
func Cost(m *ktmsv1.ModelSpec, u *ktmsv1.TokensUsage, at time.Time, mode Mode) int64 {
	if m == nil || u == nil {
		return 0
	}
	r := ratesOf(m, u.GetInput(), at, mode)
	read, write, write1h := whole(u.GetCacheRead()), whole(u.GetCacheWrite()), whole(u.GetCacheWrite_1H())
	fresh := whole(u.GetInput())
	for _, part := range []uint64{read, write, write1h} {
		fresh -= min(fresh, part)
	}
	var sum total
	sum.add(fresh, r.in)
	sum.add(read, r.read)
	sum.add(write, r.write)
	sum.add(write1h, r.write1h)
	sum.add(whole(u.GetOutput()), r.out)
	return sum.nano()
}

// Worst is the most that an interactive call may cost in nano-USD when it starts at a time: every token of its input at
// the dearest price that may apply to one, and an answer of full length. With longCache the input may be written to an
// hour's cache.
func Worst(m *ktmsv1.ModelSpec, input, output int64, longCache bool, at time.Time) int64 {
	r := ratesOf(m, input, at, Interactive)
	dearest := max(r.in, r.write)
	if longCache {
		dearest = max(dearest, r.write1h)
	}
	var sum total
	sum.add(whole(input), dearest)
	sum.add(whole(output), r.out)
	return sum.nano()
}

func whole(n int64) uint64 { return uint64(max(n, 0)) }

// total is a sum of pico-USD in 128 bits: prices and counts come from outside.
type total struct{ hi, lo uint64 }

func (t *total) add(tokens uint64, r rate) {
	hi, lo := bits.Mul64(tokens, r)
	var carry uint64
	t.lo, carry = bits.Add64(t.lo, lo, 0)
	t.hi, _ = bits.Add64(t.hi, hi, carry)
}

func (t *total) nano() int64 {
	lo, carry := bits.Add64(t.lo, picoPerNano/2, 0)
	hi := t.hi + carry
	if hi >= picoPerNano {
		return math.MaxInt64
	}
	nano, _ := bits.Div64(hi, lo, picoPerNano)
	return int64(min(nano, math.MaxInt64))
}

// ratesOf finds the rates of a call: those of the model, of the tier that the prompt's length falls into, then the
// vendor's defaults for the cache, and all of them scaled for peak hours or batches.
func ratesOf(m *ktmsv1.ModelSpec, prompt int64, at time.Time, mode Mode) rates {
	in, out := m.GetPriceInPerMtok(), m.GetPriceOutPerMtok()
	read, write, write1h := m.GetPriceCacheReadPerMtok(), m.GetPriceCacheWritePerMtok(), m.GetPriceCacheWrite_1HPerMtok()
	if tier := tierOf(m.GetPriceTiers(), prompt); tier != nil {
		in, out = or(tier.GetPriceInPerMtok(), in), or(tier.GetPriceOutPerMtok(), out)
		read, write = or(tier.GetPriceCacheReadPerMtok(), read), or(tier.GetPriceCacheWritePerMtok(), write)
		write1h = or(tier.GetPriceCacheWrite_1HPerMtok(), write1h)
	}
	factor, known := defaultCache[m.GetVendor()]
	if !known {
		factor = plainCache
	}
	read, write = or(read, in*factor.read), or(write, in*factor.write)
	write1h = or(write1h, max(in*factor.write1h, write))

	scaleIn, scaleOut := 1.0, 1.0
	switch {
	case mode == Batch:
		scaleIn, scaleOut = ratio(m.GetPriceInBatchPerMtok(), m.GetPriceInPerMtok(), 0.5), ratio(m.GetPriceOutBatchPerMtok(), m.GetPriceOutPerMtok(), 0.5)
		// The manual's two prices go together: one alone leaves the other at its regular price.
		if m.GetPriceInBatchPerMtok() > 0 && m.GetPriceOutBatchPerMtok() == 0 {
			scaleOut = 1
		}
		if m.GetPriceOutBatchPerMtok() > 0 && m.GetPriceInBatchPerMtok() == 0 {
			scaleIn = 1
		}
	case Peak(m.GetVendor(), at):
		scaleIn, scaleOut = ratio(m.GetPriceInPeakPerMtok(), m.GetPriceInPerMtok(), 1), ratio(m.GetPriceOutPeakPerMtok(), m.GetPriceOutPerMtok(), 1)
		if in == 0 {
			in = m.GetPriceInPeakPerMtok() // free but at peak
		}
		if out == 0 {
			out = m.GetPriceOutPeakPerMtok()
		}
	}
	return rates{in: pico(in * scaleIn), out: pico(out * scaleOut), read: pico(read * scaleIn), write: pico(write * scaleIn), write1h: pico(write1h * scaleIn)}
}

// tierOf returns the dearest tier that the prompt reaches: the one with the highest threshold below it.
func tierOf(tiers []*ktmsv1.PriceTier, prompt int64) *ktmsv1.PriceTier {
	var found *ktmsv1.PriceTier
	for _, tier := range tiers {
		if prompt > tier.GetAbovePromptTokens() && (found == nil || tier.GetAbovePromptTokens() > found.GetAbovePromptTokens()) {
			found = tier
		}
	}
	return found
}

func or(price, otherwise float64) float64 {
	if price > 0 {
		return price
	}
	return otherwise
}

// ratio is what a special price is of the regular one, where there is a special one.
func ratio(special, regular, otherwise float64) float64 {
	if special > 0 && regular > 0 {
		return special / regular
	}
	return otherwise
}

func pico(pricePerMtok float64) rate {
	if !(pricePerMtok > 0) { // NaN too
		return 0
	}
	return rate(math.Round(min(pricePerMtok*picoPerMtok, math.MaxInt64)))
}
