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
	// patience is how long a request waits for a slot, in seconds.
	patience float64
	// unary is the share of the requests that want their answer in one piece.
	unary float64
	// independent: each turn is a conversation of its own.
	independent bool
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
	// streamed: the answer comes token by token.
	streamed bool
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
	// first is the turn that it goes on with at start: those before it are over when a run begins.
	first int
}

const gateways = 3

// bytesPerToken is that of English text.
const bytesPerToken = 4

// add appends a turn.
func (s *session) add(r *rand.Rand, pause float64, message []piece, output int) {
	s.turns = append(s.turns, &turn{
		message: message, answer: fresh(r, output), pause: pause,
		gateway: r.IntN(gateways), misjudged: 0.85 + 0.35*r.Float64(),
	})
}

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

// usualTPS is what it is assumed how quickly the answers came that are over when a run begins.
const usualTPS = 30

// generate makes the sessions of a time, so many requests a second on average. Those that began before 0 and last longer go
// on where they are then: otherwise the load would grow for as long as a session lasts.
func generate(w workload, seed uint64, requestsPerSecond, duration float64) []*session {
	r := rand.New(rand.NewPCG(seed, w.stream))
	shared := w.shared(r)
	turns, longest := w.extent(shared, rand.New(rand.NewPCG(seed, 98)))
	rate := requestsPerSecond / turns
	var sessions []*session
	for at := -longest; ; {
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
			for _, t := range s.turns {
				t.streamed = r.Float64() >= w.unary
			}
			if s.skip(); s.first < len(s.turns) {
				sessions = append(sessions, s)
			}
		}
	}
	var scratch []byte
	for _, s := range sessions {
		scratch = s.complete(w.independent, scratch)
	}
	return sessions
}

// skip leaves out the turns that are over at 0.
func (s *session) skip() {
	for s.start < 0 && s.first < len(s.turns) {
		s.start += float64(s.turns[s.first].answer.tokens) / usualTPS
		if s.first++; s.first < len(s.turns) {
			s.start += s.turns[s.first].pause
		}
	}
}

// sampled is how many sessions a mean is taken over.
const sampled = 2000

// extent is how many turns a session has on average, and about how many seconds the longest one lasts.
func (w workload) extent(shared []piece, r *rand.Rand) (turns, longest float64) {
	for range sampled {
		s := w.session(r, shared)
		lasts := 0.0
		for _, t := range s.turns {
			turns++
			lasts += t.pause + float64(t.answer.tokens)/usualTPS
		}
		longest = max(longest, lasts)
	}
	return turns / sampled, longest
}

// demand is that of a workload's average request, if nothing is held.
func (w workload) demand(seed uint64) demand {
	r := rand.New(rand.NewPCG(seed, 99))
	shared := w.shared(rand.New(rand.NewPCG(seed, w.stream)))
	d, turns := demand{}, 0.0
	for range sampled {
		s := w.session(r, shared)
		history := s.head.tokens
		for _, t := range s.turns {
			added := 0
			for _, p := range t.message {
				added += p.tokens
			}
			d.prompt += float64(history + added)
			d.output += float64(t.answer.tokens)
			turns++
			if !w.independent {
				history += added + t.answer.tokens
			}
		}
	}
	return demand{prompt: d.prompt / turns, output: d.output / turns}
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
