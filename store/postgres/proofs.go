package postgres

import (
	"strconv"
	"sync"
	"time"
)

// maxProofs bounds what is remembered while nothing is heard, as during a long delivery.
const maxProofs = 64

// proof is one notification that the feed sent to itself.
type proof struct {
	sequence string
	sentAt   time.Time // with its monotonic clock
}

// proofs are those of one listening connection that are on their way, oldest first. Those of an earlier connection are
// unknown to it: they were sent before it listened and prove nothing.
type proofs struct {
	mu   sync.Mutex
	last int64
	sent []proof
}

func newProofs() *proofs {
	// Starting at the clock keeps the sequences of successive connections apart.
	return &proofs{last: time.Now().UnixNano()}
}

// send registers a proof that is about to be sent, unless too many are on their way.
func (p *proofs) send(now time.Time) (sequence string, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.sent) >= maxProofs {
		return "", false
	}
	p.last++
	sequence = strconv.FormatInt(p.last, 10)
	p.sent = append(p.sent, proof{sequence, now})
	return sequence, true
}

// withdraw forgets a proof that could not be sent.
func (p *proofs) withdraw(sequence string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, one := range p.sent {
		if one.sequence == sequence {
			p.sent = append(p.sent[:i], p.sent[i+1:]...)
			return
		}
	}
}

// receive returns when a proof was sent, and forgets it with all before it.
func (p *proofs) receive(sequence string) (sentAt time.Time, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, one := range p.sent {
		if one.sequence == sequence {
			p.sent = append(p.sent[:0], p.sent[i+1:]...)
			return one.sentAt, true
		}
	}
	return time.Time{}, false
}

// oldest is for how long the oldest proof has been on its way, 0 when none is.
func (p *proofs) oldest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.sent) == 0 {
		return 0
	}
	return time.Since(p.sent[0].sentAt)
}
