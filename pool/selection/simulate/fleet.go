package main

// machine is a kind of GPU machine, with the figures that engines on such machines show.
type machine struct {
	name  string
	count int
	slots int64
	// prefill is how many tokens of prompts it reads per second, one prompt after the other, and overhead what a first
	// token takes beside that, in seconds.
	prefill, overhead float64
	// single and full are tokens per second of one answer when it is alone, and when all slots are taken.
	single, full float64
	// context and cache are in tokens.
	context, cache int
	// startup is how long the weights take to load, in seconds.
	startup float64
}

// fleet has 12 nodes and 194 slots.
var fleet = []machine{
	{"h100", 2, 40, 18_000, 0.05, 80, 35, 131_072, 400_000, 40},
	{"a100", 3, 20, 9_000, 0.06, 55, 28, 131_072, 200_000, 40},
	{"rtx4090", 4, 10, 5_000, 0.06, 60, 35, 32_768, 60_000, 20},
	{"mac", 2, 4, 600, 0.15, 25, 12, 32_768, 30_000, 20},
	{"t4", 1, 6, 1_200, 0.10, 20, 10, 16_384, 20_000, 20},
}

// rate is how many tokens per second each of so many answers gets.
func (m machine) rate(answers int) float64 {
	if answers <= 1 {
		return m.single
	}
	slowdown := (m.single/m.full - 1) / max(float64(m.slots)-1, 1)
	return m.single / (1 + slowdown*float64(answers-1))
}

// capacity is how many average requests per second the machine can serve: as many as its slots allow while all are busy,
// and no more than it can read. Nothing is counted off for prefixes that it holds.
func (m machine) capacity(promptTokens, outputTokens float64) float64 {
	reading := m.overhead + promptTokens/m.prefill
	return min(float64(m.slots)/(reading+outputTokens/m.full), 1/reading)
}

// capacity is that of all nodes, without what foreigners and faults take away on average: a load of 95 % would be too much
// otherwise, and then there is nothing to choose.
func (s setting) capacity(promptTokens, outputTokens float64) float64 {
	total, lost := 0.0, 0.0
	nodes := 0
	for _, m := range fleet {
		one := m.capacity(promptTokens, outputTokens)
		total += float64(m.count) * one
		lost += foreignShare * float64(foreign[m.name]) * one
		nodes += m.count
	}
	if s.faultEvery > 0 {
		total *= 1 - lostPerFault/s.faultEvery/float64(nodes)
	}
	return total - lost
}
