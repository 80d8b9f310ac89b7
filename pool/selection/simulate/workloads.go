package main

import "math/rand/v2"

// How long people take before they go on, from the end of an answer: at least so long, and as much again on average. With
// it four fifths of the reuses of a prompt come within ten minutes, as in a trace of chatbots at Alibaba ("KVCache Cache in
// the Wild", arXiv 2506.02634).
const leastThought, moreThought = 10.0, 40.0

// What requests wait at most: a service the spec's queue_timeout_ms, a person the gateway's limit for interactive callers.
const servicePatience, personPatience = 2.0, 0.25

// workloads follow what is published of real traffic. Where a trace shows how much of its prompts an endless cache would
// hold, that is given, as nothing else here matters as much.
var workloads = []workload{
	{
		// Programs that ask one thing under a fixed instruction: 97 % of what is reused by the API's clients at Alibaba is
		// that, 62 % of all tokens, and a tenth of it makes three quarters of the reuse.
		name: "one-shot", stream: 1, burst: 1, patience: servicePatience, unary: 0.5,
		shared: heads(100, 600, 2000),
		session: func(r *rand.Rand, heads []piece) *session {
			s := &session{head: popular(r, heads)}
			s.add(r, 0, []piece{fresh(r, lognormal(r, 400, 1.0, 10, 6000))}, lognormal(r, 180, 0.8, 8, 1000))
			return s
		},
	},
	{
		// People who chat. Answers have some 215 tokens in LMSYS-Chat-1M and 340 in ShareGPT, prompts with all history 1020
		// in the median of Azure's conversations (Splitwise, arXiv 2311.18677).
		name: "chat", stream: 2, burst: 1, patience: personPatience,
		shared: heads(10, 300, 1500),
		session: func(r *rand.Rand, heads []piece) *session {
			s := &session{head: popular(r, heads)}
			for range 2 + r.IntN(9) {
				s.add(r, thought(r), []piece{fresh(r, lognormal(r, 120, 1.1, 10, 6000))}, lognormal(r, 200, 0.8, 8, 1000))
			}
			return s
		},
	},
	{
		// People who ask about long texts: Mooncake's conversations have 12,000 tokens on average, answers 343, and reuse
		// 40 % (FAST '25). Here several questions on one text, each in a conversation of its own.
		name: "documents", stream: 3, burst: 1, patience: personPatience, independent: true,
		shared: heads(5, 200, 600),
		session: func(r *rand.Rand, heads []piece) *session {
			s := &session{head: popular(r, heads)}
			text := fresh(r, lognormal(r, 8000, 0.9, 1500, 60_000))
			questions := 1
			if r.Float64() < 0.4 {
				questions += 1 + r.IntN(3)
			}
			for range questions {
				s.add(r, thought(r), []piece{text, fresh(r, lognormal(r, 40, 0.6, 8, 300))}, lognormal(r, 250, 0.7, 20, 1000))
			}
			return s
		},
	},
	{
		// Agents with tools, several of which are set to work together. Traces of coding agents reuse 86 to 97 %
		// (SemiAnalysis), those of Mooncake's agents, with 8,600 tokens, 59 %.
		name: "agents", stream: 4, burst: 10, patience: servicePatience,
		shared: heads(8, 3000, 6000),
		session: func(r *rand.Rand, heads []piece) *session {
			s := &session{head: popular(r, heads)}
			s.add(r, 0, []piece{fresh(r, lognormal(r, 200, 0.8, 20, 3000))}, lognormal(r, 80, 0.6, 10, 400))
			for range 3 + r.IntN(12) {
				s.add(r, 0.3+1.2*r.ExpFloat64(), []piece{fresh(r, lognormal(r, 400, 1.2, 20, 5000))}, lognormal(r, 80, 0.6, 10, 400))
			}
			return s
		},
	},
	{
		// Editors that complete code: 1500 tokens in the median, answers of 13 (Azure's coding service, Splitwise). What
		// stands far above the cursor stays, what is near it changes.
		name: "completion", stream: 5, burst: 1, patience: personPatience, independent: true,
		shared: heads(3, 50, 200),
		session: func(r *rand.Rand, heads []piece) *session {
			s := &session{head: popular(r, heads)}
			above := fresh(r, lognormal(r, 900, 0.9, 50, 8000))
			for range 5 + r.IntN(16) {
				s.add(r, 2+6*r.ExpFloat64(), []piece{above, fresh(r, lognormal(r, 400, 0.6, 50, 2000))}, lognormal(r, 13, 0.9, 2, 200))
			}
			return s
		},
	},
	{
		// Assistants that look up passages for each question, half a dozen of some 350 tokens, and talk on. No trace of such
		// is public.
		name: "retrieval", stream: 6, burst: 1, patience: personPatience,
		shared: heads(20, 500, 2500),
		session: func(r *rand.Rand, heads []piece) *session {
			s := &session{head: popular(r, heads)}
			for range 1 + r.IntN(4) {
				s.add(r, thought(r), []piece{fresh(r, lognormal(r, 2200, 0.5, 500, 8000))}, lognormal(r, 200, 0.7, 20, 1000))
			}
			return s
		},
	},
	{
		// Jobs that summarise or extract: a few workers each, one text after the other under one instruction, answers in one
		// piece. The articles of the usual benchmark for it (CNN/DailyMail) have about 1,000 tokens, papers and reports (arXiv,
		// GovReport) 6,000 to 9,000.
		name: "batch", stream: 7, burst: 8, patience: servicePatience, unary: 1, independent: true,
		shared: heads(20, 150, 500),
		session: func(r *rand.Rand, heads []piece) *session {
			s := &session{head: popular(r, heads)}
			for range 4 + r.IntN(17) {
				s.add(r, 0.1+0.4*r.ExpFloat64(), []piece{fresh(r, lognormal(r, 1800, 0.9, 200, 12_000))}, lognormal(r, 130, 0.6, 20, 600))
			}
			return s
		},
	},
}

func thought(r *rand.Rand) float64 { return leastThought + moreThought*r.ExpFloat64() }
