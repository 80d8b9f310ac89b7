package admit

import (
	"math"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

var (
	offPeak = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) // a Monday
	peak    = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
)

// Golden costs, worked out by hand from price lists: tokens × USD per million, in nano-USD.
func TestCost(t *testing.T) {
	haiku := &ktmsv1.ModelSpec{Vendor: vendors.Anthropic, PriceInPerMtok: 0.10, PriceOutPerMtok: 0.50, PriceCacheReadPerMtok: 0.01, PriceCacheWritePerMtok: 0.125,
		PriceTiers: []*ktmsv1.PriceTier{{AbovePromptTokens: 100_000, PriceInPerMtok: 0.50, PriceOutPerMtok: 2.50, PriceCacheReadPerMtok: 0.05, PriceCacheWritePerMtok: 0.625}}}
	opus := &ktmsv1.ModelSpec{Vendor: vendors.Anthropic, PriceInPerMtok: 4, PriceOutPerMtok: 20}
	luna := &ktmsv1.ModelSpec{Vendor: vendors.OpenAI, PriceInPerMtok: 0.10, PriceOutPerMtok: 0.50, PriceCacheReadPerMtok: 0.01, PriceCacheWritePerMtok: 0.125}
	flash := &ktmsv1.ModelSpec{Vendor: vendors.DeepSeek, PriceInPerMtok: 0.15, PriceOutPerMtok: 0.60, PriceCacheReadPerMtok: 0.003, PriceInPeakPerMtok: 0.30, PriceOutPeakPerMtok: 1.20}
	nova := &ktmsv1.ModelSpec{Vendor: vendors.Bedrock, PriceInPerMtok: 0.8, PriceOutPerMtok: 3.2}
	oss := &ktmsv1.ModelSpec{Vendor: vendors.Groq, PriceInPerMtok: 0.075, PriceOutPerMtok: 0.30}
	batch := &ktmsv1.ModelSpec{Vendor: vendors.OpenAI, PriceInPerMtok: 2, PriceOutPerMtok: 10, PriceCacheReadPerMtok: 0.2, PriceInBatchPerMtok: 0.8, PriceOutBatchPerMtok: 4}
	for _, c := range []struct {
		name  string
		model *ktmsv1.ModelSpec
		usage *ktmsv1.TokensUsage
		at    time.Time
		mode  Mode
		want  int64
	}{
		{"plain", luna, &ktmsv1.TokensUsage{Input: 1000, Output: 100}, offPeak, Interactive, 100_000 + 50_000},
		{"OpenAI: cached and written are parts of the input", luna, &ktmsv1.TokensUsage{Input: 1000, CacheRead: 600, CacheWrite: 200, Output: 100, Reasoning: 90}, offPeak, Interactive,
			200*100 + 600*10 + 200*125 + 100*500},
		{"Anthropic: 5 minutes and 1 hour", haiku, &ktmsv1.TokensUsage{Input: 3000, CacheRead: 2000, CacheWrite: 500, CacheWrite_1H: 400, Output: 10}, offPeak, Interactive,
			100*100 + 2000*10 + 500*125 + 400*200 + 10*500},
		{"Anthropic: the threshold itself is not above it", haiku, &ktmsv1.TokensUsage{Input: 100_000, Output: 1}, offPeak, Interactive, 100_000*100 + 500},
		{"Anthropic: the tier counts cached tokens and prices all of the call", haiku, &ktmsv1.TokensUsage{Input: 100_001, CacheRead: 100_000, Output: 1}, offPeak, Interactive,
			1*500 + 100_000*50 + 2500},
		{"Anthropic: default cache prices", opus, &ktmsv1.TokensUsage{Input: 400, CacheRead: 100, CacheWrite: 100, CacheWrite_1H: 100, Output: 0}, offPeak, Interactive,
			100*4000 + 100*400 + 100*5000 + 100*8000},
		{"Bedrock: default cache prices", nova, &ktmsv1.TokensUsage{Input: 300, CacheRead: 100, CacheWrite: 100, Output: 1}, offPeak, Interactive, 100*800 + 100*200 + 100*1000 + 3200},
		{"others: the input price", oss, &ktmsv1.TokensUsage{Input: 300, CacheRead: 200, CacheWrite: 50, Output: 1}, offPeak, Interactive, 300*75 + 300},
		{"half a nano rounds up, once", oss, &ktmsv1.TokensUsage{Input: 1}, offPeak, Interactive, 75},
		{"DeepSeek off peak", flash, &ktmsv1.TokensUsage{Input: 1000, CacheRead: 900, Output: 100}, offPeak, Interactive, 100*150 + 900*3 + 100*600},
		{"DeepSeek at peak: the cache scales along", flash, &ktmsv1.TokensUsage{Input: 1000, CacheRead: 900, Output: 100}, peak, Interactive, 100*300 + 900*6 + 100*1200},
		{"no peak price, no peak", luna, &ktmsv1.TokensUsage{Input: 10}, peak, Interactive, 1000},
		{"batch: half by default", luna, &ktmsv1.TokensUsage{Input: 1000, CacheRead: 600, Output: 100}, offPeak, Batch, 400*50 + 600*5 + 100*250},
		{"batch: its own price, the cache scales along", batch, &ktmsv1.TokensUsage{Input: 1000, CacheRead: 500, Output: 10}, offPeak, Batch, 500*800 + 500*80 + 10*4000},
		{"more cached than there was", luna, &ktmsv1.TokensUsage{Input: 10, CacheRead: 10, CacheWrite: 10}, offPeak, Interactive, 10*10 + 10*125},
		{"negative counts are no credit", luna, &ktmsv1.TokensUsage{Input: -10, Output: -1}, offPeak, Interactive, 0},
		{"no prices", &ktmsv1.ModelSpec{Vendor: vendors.OpenAI}, &ktmsv1.TokensUsage{Input: 10, Output: 10}, offPeak, Interactive, 0},
		{"no usage", luna, nil, offPeak, Interactive, 0},
		{"more than fits", &ktmsv1.ModelSpec{PriceInPerMtok: 1e6}, &ktmsv1.TokensUsage{Input: math.MaxInt64}, offPeak, Interactive, math.MaxInt64},
	} {
		if got := Cost(c.model, c.usage, c.at, c.mode); got != c.want {
			t.Errorf("%s: %d nano-USD, want %d", c.name, got, c.want)
		}
	}
}

// A price list with fractions of a nano-USD per token still adds up exactly.
func TestCostOfFractions(t *testing.T) {
	m := &ktmsv1.ModelSpec{Vendor: vendors.Groq, PriceInPerMtok: 0.0375, PriceOutPerMtok: 0.30}
	if got := Cost(m, &ktmsv1.TokensUsage{Input: 1_000_000}, offPeak, Interactive); got != 37_500_000 {
		t.Errorf("a million tokens cost %d nano-USD", got)
	}
	if got := Cost(m, &ktmsv1.TokensUsage{Input: 3}, offPeak, Interactive); got != 113 { // 112.5
		t.Errorf("three tokens cost %d nano-USD", got)
	}
}

func TestPeak(t *testing.T) {
	for at, want := range map[string]bool{
		"2026-11-30T00:59:59Z": false, "2026-11-30T01:00:00Z": true, "2026-11-30T03:59:59Z": true, "2026-11-30T04:00:00Z": false,
		"2026-11-30T06:00:00Z": true, "2026-11-30T10:00:00Z": false, "2026-11-28T02:00:00Z": false, "2026-11-29T07:00:00Z": false,
		"2026-11-30T10:30:00+09:00": true, "2026-11-30T02:00:00+09:00": false,
	} {
		when, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if got := Peak(vendors.DeepSeek, when); got != want {
			t.Errorf("%s: %v", at, got)
		}
		if Peak(vendors.OpenAI, when) {
			t.Errorf("%s: a vendor without peak hours", at)
		}
	}
}

// The most that a call can cost, by hand; and never less than what it does cost when it stays within what was reserved.
func TestWorst(t *testing.T) {
	haiku := &ktmsv1.ModelSpec{Vendor: vendors.Anthropic, PriceInPerMtok: 0.10, PriceOutPerMtok: 0.50, PriceCacheReadPerMtok: 0.01, PriceCacheWritePerMtok: 0.125,
		PriceTiers: []*ktmsv1.PriceTier{{AbovePromptTokens: 100_000, PriceInPerMtok: 0.50, PriceOutPerMtok: 2.50, PriceCacheReadPerMtok: 0.05, PriceCacheWritePerMtok: 0.625}}}
	flash := &ktmsv1.ModelSpec{Vendor: vendors.DeepSeek, PriceInPerMtok: 0.15, PriceOutPerMtok: 0.60, PriceInPeakPerMtok: 0.30, PriceOutPeakPerMtok: 1.20}
	free := &ktmsv1.ModelSpec{Vendor: vendors.Local}
	for _, c := range []struct {
		name          string
		model         *ktmsv1.ModelSpec
		input, output int64
		long          bool
		at            time.Time
		want          int64
	}{
		{"a cache write is dearer than fresh input", haiku, 1000, 100, false, offPeak, 125_000 + 50_000},
		{"an hour's cache write is dearer still", haiku, 1000, 100, true, offPeak, 200_000 + 50_000},
		{"the tier of the prompt", haiku, 100_001, 100, false, offPeak, 62_500_625 + 250_000},
		{"off peak", flash, 1000, 1000, false, offPeak, 150_000 + 600_000},
		{"at peak", flash, 1000, 1000, false, peak, 300_000 + 1_200_000},
		{"no prices", free, 1000, 1000, true, offPeak, 0},
		{"more than money can be", haiku, math.MaxInt64, math.MaxInt64, true, offPeak, math.MaxInt64},
		{"nothing", haiku, 0, 0, true, offPeak, 0},
	} {
		if got := Worst(c.model, c.input, c.output, c.long, c.at); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
		for _, part := range []int64{0, c.input / 3, c.input} {
			u := &ktmsv1.TokensUsage{Input: c.input, Output: c.output, CacheWrite: part, CacheRead: c.input - part}
			if c.long {
				u.CacheWrite, u.CacheWrite_1H = 0, part
			}
			if cost := Cost(c.model, u, c.at, Interactive); cost > c.want {
				t.Errorf("%s: a call of that size costs %d, more than its worst case %d", c.name, cost, c.want)
			}
		}
	}
}
