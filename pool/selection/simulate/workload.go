package main

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ai-process/ktms/pool/selection"
)

// workload makes the sessions of one kind of client.
type workload struct {
	name string
	// stream keeps its random numbers apart from those of the others.
	stream uint64
	// burst is how many sessions begin together on average.
	burst float64
	// shared are the heads (tools and system prompt) that sessions choose from, in tokens.
	shared func(*rand.Rand) []piece
	// session makes one.
	session func(r *rand.Rand, heads []piece) *session
}

// piece is a text, of which only identity and length matter.
type piece struct {
	id     uint64
	tokens int
}

// turn is one request of a session: what it adds to those before it, and what comes back.
type turn struct {
	message []piece
	answer  piece
	// pause is the time from the answer before to this turn, in seconds.
	pause float64
	// gateway is where the load balancer sends it.
	gateway int
	// misjudged is what the gateway's estimate of tokens is off by, as a factor.
	misjudged float64

	// What follows from all that came before.
	chain    []link
	prefixes []selection.Prefix
	estimate int64
}

// session is a sequence of turns over one growing conversation.
type session struct {
	start float64
	head  piece
	turns []*turn
}

const gateways = 3

// bytesPerToken is that of English text.
const bytesPerToken = 4

var workloads = []workload{
	{
		name: "chat", stream: 1, burst: 1,
		shared: heads(20, 600, 2000),
		session: func(r *rand.Rand, heads []piece) *session {
			s := &session{head: popular(r, heads)}
			s.add(r, 0, []piece{fresh(r, lognormal(r, 90, 1.0, 10, 3000))}, lognormal(r, 180, 0.8, 8, 1000))
			return s
		},
	},
	{
		name: "multi-turn", stream: 2, burst: 1,
		shared: heads(10, 300, 1500),
		session: func(r *rand.Rand, heads []piece) *session {
			s := &session{head: popular(r, heads)}
			for range 2 + r.IntN(9) {
				s.add(r, 3+15*r.ExpFloat64(), []piece{fresh(r, lognormal(r, 120, 1.1, 10, 6000))}, lognormal(r, 200, 0.8, 8, 1000))
			}
			return s
		},
	},
	{
		name: "documents", stream: 3, burst: 1,
		shared: heads(5, 200, 600),
		session: func(r *rand.Rand, heads []piece) *session {
			// Several questions on one text, each in a conversation of its own, so that only the text is shared.
			s := &session{head: popular(r, heads)}
			text := fresh(r, lognormal(r, 8000, 0.9, 1500, 60_000))
			questions := 1
			if r.Float64() < 0.4 {
				questions += 1 + r.IntN(3)
			}
			for range questions {
				s.add(r, 5+20*r.ExpFloat64(), []piece{text, fresh(r, lognormal(r, 40, 0.6, 8, 300))}, lognormal(r, 250, 0.7, 20, 1000))
			}
			return s
		},
	},
	{
		name: "agents", stream: 4, burst: 10,
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
}

// add appends a turn.
func (s *session) add(r *rand.Rand, pause float64, message []piece, output int) {
	s.turns = append(s.turns, &turn{
		message: message, answer: fresh(r, output), pause: pause,
		gateway: r.IntN(gateways), misjudged: 0.85 + 0.35*r.Float64(),
	})
}

// independent: each turn is a conversation of its own.
func (w workload) independent() bool { return w.name == "documents" }

func heads(count, least, most int) func(*rand.Rand) []piece {
	return func(r *rand.Rand) []piece {
		all := make([]piece, count)
		for i := range all {
			all[i] = fresh(r, least+r.IntN(most-least))
		}
		return all
	}
}

// popular picks by Zipf's law.
func popular(r *rand.Rand, of []piece) piece {
	return of[rand.NewZipf(r, 1.2, 1, uint64(len(of)-1)).Uint64()]
}

func fresh(r *rand.Rand, tokens int) piece { return piece{r.Uint64(), tokens} }

func lognormal(r *rand.Rand, median, sigma, least, most float64) int {
	return int(min(max(median*math.Exp(sigma*r.NormFloat64()), least), most))
}

// generate makes the sessions that begin within a time, at a share of what the fleet can serve.
func generate(w workload, seed uint64, load, duration float64, under setting) []*session {
	r := rand.New(rand.NewPCG(seed, w.stream))
	shared := w.shared(r)
	rate := load * sessionsPerSecond(w, under, shared, rand.New(rand.NewPCG(seed, 99)))
	var sessions []*session
	for at := 0.0; ; {
		at += r.ExpFloat64() * w.burst / rate
		if at > duration {
			break
		}
		together := 1
		if w.burst > 1 {
			together = 1 + int(r.ExpFloat64()*(w.burst-0.5)) // the floor takes half of one away
		}
		for range together {
			s := w.session(r, shared)
			s.start = at + 2*r.Float64()*float64(min(together-1, 1))
			sessions = append(sessions, s)
		}
	}
	var scratch []byte
	for _, s := range sessions {
		scratch = s.complete(w.independent(), scratch)
	}
	return sessions
}

// sessionsPerSecond is how many sessions the fleet can serve, by the means of a sample.
func sessionsPerSecond(w workload, under setting, shared []piece, r *rand.Rand) float64 {
	const sample = 2000
	prompt, output, turns := 0.0, 0.0, 0.0
	for range sample {
		s := w.session(r, shared)
		history := s.head.tokens
		for _, t := range s.turns {
			added := 0
			for _, p := range t.message {
				added += p.tokens
			}
			prompt += float64(history + added)
			output += float64(t.answer.tokens)
			turns++
			if !w.independent() {
				history += added + t.answer.tokens
			}
		}
	}
	return under.capacity(prompt/turns, output/turns) * sample / turns
}

// complete works out what follows from the turns: the engine's links and the gateway's keys, over real bytes.
func (s *session) complete(independent bool, scratch []byte) []byte {
	messages := make([][]byte, 0, 2*len(s.turns))
	scratch = scratch[:0]
	scratch, head := s.head.write(scratch)
	begin := []link{{s.head.id, s.head.tokens}}
	chain := begin
	for _, t := range s.turns {
		if independent {
			chain, messages = begin, nil
		}
		chain = slices.Clip(chain)
		start := len(scratch)
		for _, p := range t.message {
			scratch, _ = p.write(scratch)
			chain = append(chain, chain[len(chain)-1].next(p))
		}
		messages = append(messages, scratch[start:len(scratch):len(scratch)])
		t.chain = chain
		t.estimate = int64(float64(chain[len(chain)-1].tokens) * t.misjudged)
		t.prefixes = selection.Prefixes(selection.Prompt{Tenant: "t", Model: model, Head: head, Messages: messages, Tokens: t.estimate})
		start = len(scratch)
		scratch, _ = t.answer.write(scratch)
		messages = append(messages, scratch[start:len(scratch):len(scratch)])
		chain = append(chain, chain[len(chain)-1].next(t.answer))
	}
	return scratch
}

func (l link) next(p piece) link { return link{mix(l.hash ^ mix(p.id)), l.tokens + p.tokens} }

// write appends the text of a piece.
func (p piece) write(to []byte) (all, text []byte) {
	start := len(to)
	for i := range (p.tokens*bytesPerToken + 7) / 8 {
		to = binary.LittleEndian.AppendUint64(to, p.id+uint64(i)*0x9E3779B97F4A7C15)
	}
	to = to[:start+p.tokens*bytesPerToken]
	return to, to[start:len(to):len(to)]
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
