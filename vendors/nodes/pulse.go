package nodes

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/transport"
)

// Pulse says when a machine that has gone silent under a call is asked whether it lives. A long prompt is no reason to give
// a call up, and neither is a lost heartbeat; a machine that does not even list its models is. Until the answer has begun
// the call then goes to another one.
type Pulse struct {
	// Look is how often calls are looked at.
	Look time.Duration
	// Silence is how long a call may hear nothing before its machine is asked; a machine that reports trouble, or whose
	// heartbeats are missed, is asked at the next look.
	Silence time.Duration
	// Answer is how long it has for its answer.
	Answer time.Duration
	// Stall is how long a machine may take to begin a stream, beside reading what it was sent, before a caller that gives up
	// counts as its failure, and a quarter of what it may take for an answer in one piece. An engine that hangs may well list
	// its models.
	Stall time.Duration
}

// The defaults: a machine that hangs is left after about eleven seconds, and one that works hard is never asked more than
// a trifle.
const (
	defaultLook    = time.Second
	defaultSilence = 5 * time.Second
	defaultAnswer  = 3 * time.Second
	defaultStall   = 30 * time.Second
	// missesToDie is how many questions in a row have to stay without an answer.
	missesToDie = 2
	// pulsePause is how long a machine that has answered is not asked again.
	pulsePause = 5 * time.Second
	// maxPulse is how much of the answer is read, so that the connection can be used again.
	maxPulse = 64 << 10
)

func (p Pulse) filled() Pulse {
	if p.Look == 0 {
		p.Look = defaultLook
	}
	if p.Silence == 0 {
		p.Silence = defaultSilence
	}
	if p.Answer == 0 {
		p.Answer = defaultAnswer
	}
	if p.Stall == 0 {
		p.Stall = defaultStall
	}
	return p
}

const (
	// wholeStalls is how many times longer an answer in one piece may take than the beginning of a stream.
	wholeStalls = 4
	// slowReads is how many times longer a prompt may take than it is expected to.
	slowReads = 3
)

// stalled reports whether a caller that has left had waited for longer than a machine that works lets anybody wait.
func (c *visit) stalled() bool {
	if !c.first.IsZero() {
		return false
	}
	allowed := c.v.options.Pulse.Stall
	if !c.streamed {
		allowed *= wholeStalls
	}
	reading := c.v.paces.of(c.node.ID, c.lease.Model) * float64(c.lease.Ahead+c.lease.Queued) * slowReads
	return time.Since(c.started).Seconds() > allowed.Seconds()+reading
}

// pulse is what is known of one machine's.
type pulse struct {
	mu     sync.Mutex
	asking bool
	// rested is until when it is not asked.
	rested time.Time
}

// feel looks for calls that have gone silent, and asks their machines.
func (v *Vendor) feel(ctx context.Context) {
	silent := map[*link][]*visit{}
	for _, c := range v.live.all() {
		if !c.handing.Load() && c.silence() >= v.options.Pulse.Look {
			silent[c.link] = append(silent[c.link], c)
		}
	}
	if len(silent) == 0 {
		return
	}
	doubtful := v.doubtful(ctx)
	for link, calls := range silent {
		asks := doubtful[calls[0].node.ID]
		for _, c := range calls {
			asks = asks || c.silence() >= v.options.Pulse.Silence
		}
		if asks && link.pulse.take() {
			v.tasks.spawn(func() { v.askPulse(ctx, link, calls) })
		}
	}
}

// doubtful are the nodes that are offline or report trouble.
func (v *Vendor) doubtful(ctx context.Context) map[string]bool {
	out := map[string]bool{}
	fleet, err := v.options.Nodes.Fleet(ctx)
	if err != nil {
		return out
	}
	for i := range fleet.Nodes {
		n := &fleet.Nodes[i]
		health, _ := n.Health(fleet.Now, v.options.TTL)
		out[n.ID] = health == selection.Offline || n.Trouble != ""
	}
	return out
}

// silence is how long nothing was heard.
func (c *visit) silence() time.Duration { return time.Since(c.started) - time.Duration(c.last.Load()) }

// take asks for leave to ask.
func (p *pulse) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking || time.Now().Before(p.rested) {
		return false
	}
	p.asking = true
	return true
}

// askPulse asks a machine, up to its death.
func (v *Vendor) askPulse(ctx context.Context, link *link, calls []*visit) {
	lives := false
	for range missesToDie {
		if lives = v.lives(ctx, link, calls[0]); lives || ctx.Err() != nil {
			break
		}
	}
	link.pulse.mu.Lock()
	link.pulse.asking = false
	if lives {
		link.pulse.rested = time.Now().Add(pulsePause)
	}
	link.pulse.mu.Unlock()
	if lives || ctx.Err() != nil {
		return
	}
	v.options.Log.Warn("a machine does not answer any more; its calls go elsewhere", "node", calls[0].node.ID, "calls", len(calls))
	for _, c := range calls {
		if !c.handing.Load() && c.silence() >= v.options.Pulse.Answer {
			c.cancel(errGone)
		}
	}
	link.carrier.CloseIdleConnections()
}

// lives reports whether a machine answers at all, whatever it says.
func (v *Vendor) lives(ctx context.Context, link *link, c *visit) bool {
	ctx, cancel := context.WithTimeout(ctx, v.options.Pulse.Answer)
	defer cancel()
	address, err := modelsURL(c.target.BaseURL)
	if err != nil {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return false
	}
	if !c.target.Key.IsZero() {
		if key, failed := transport.HeaderKey(vendors.Local, c.target.Key); failed == nil {
			req.Header.Set("Authorization", "Bearer "+key)
		}
	}
	res, err := link.carrier.RoundTrip(req)
	if err != nil {
		return false
	}
	_, _ = io.CopyN(io.Discard, res.Body, maxPulse)
	_ = res.Body.Close()
	return true
}

// modelsURL is where a base URL lists its models, by the rule of the dialect that a base without a path has its API at /v1.
func modelsURL(base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	path := strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/chat/completions")
	if path == "" {
		path = "/v1"
	}
	u.Path, u.RawPath = path+"/models", ""
	return u.String(), nil
}
