package main

// machine is a kind of GPU machine, with the figures that engines show on it for a model of some 14 billion parameters.
type machine struct {
	name  string
	count int
	slots int64
	// prefill is how many tokens of prompts it reads per second where nothing is written, and chunk how many tokens it reads
	// in a step at most.
	prefill, chunk float64
	// overhead is what a first token takes beside reading and steps, in seconds: the network, tokenising, scheduling. It
	// keeps no one else waiting.
	overhead float64
	// single and full are tokens per second of one answer when it is alone, and when all slots are taken.
	single, full float64
	// context and cache are in tokens. The cache is what the memory holds beside the weights, at the 192 KiB a token that a
	// model with 48 layers and 8 key-value heads of 128 takes (Qwen2.5-14B, say).
	context, cache int
	// startup is how long the weights take to load, in seconds.
	startup float64
}

// fleet has 12 nodes and 194 slots. The chunks are the defaults of vLLM (max_num_batched_tokens of a server: 8192 on an H100,
// 2048 on others, an A100 among them) and of llama-server (a batch of 2048). The small machines have quantised weights.
var fleet = []machine{
	{"h100", 2, 40, 18_000, 8192, 0.03, 80, 35, 131_072, 220_000, 40},
	{"a100", 3, 20, 9_000, 2048, 0.03, 55, 28, 131_072, 200_000, 40},
	{"rtx4090", 4, 10, 5_000, 2048, 0.03, 60, 35, 32_768, 60_000, 20},
	{"mac", 2, 4, 600, 2048, 0.05, 25, 12, 32_768, 60_000, 20},
	{"t4", 1, 6, 1_200, 2048, 0.05, 20, 10, 16_384, 25_000, 20},
}

// rate is how many tokens per second each of so many answers gets while nothing is read.
func (m machine) rate(answers int) float64 {
	if answers <= 1 {
		return m.single
	}
	slowdown := (m.single/m.full - 1) / max(float64(m.slots)-1, 1)
	return m.single / (1 + slowdown*float64(answers-1))
}

// capacity is how many average requests per second the machine can serve: as many as its slots and its memory allow while all
// are busy, and no more than it can read. Of a prompt, held tokens are not read.
func (m machine) capacity(d demand) float64 {
	together := max(min(float64(m.slots), float64(m.cache)/(d.prompt+d.output)), 1)
	step := 1 / m.rate(int(together))
	read := d.prompt - d.held
	occupied := m.overhead + d.output*step + together*read/m.prefill
	return min(together/occupied, 1/(read/m.prefill+read*step/m.chunk))
}

// demand is an average request, in tokens.
type demand struct{ prompt, held, output float64 }

// capacity is that of all nodes, without what foreigners and faults take away on average: a load of 95 % would be too much
// otherwise, and then there is nothing to choose.
func (s setting) capacity(d demand) float64 {
	total, lost := 0.0, 0.0
	nodes := 0
	for _, m := range fleet {
		one := m.capacity(d)
		total += float64(m.count) * one
		lost += foreignShare * float64(foreign[m.name]) * one
		nodes += m.count
	}
	if s.faultEvery > 0 {
		total *= 1 - lostPerFault/s.faultEvery/float64(nodes)
	}
	return total - lost
}
