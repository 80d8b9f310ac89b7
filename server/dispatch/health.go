package dispatch

import (
	"sync"
	"time"
)

// Health remembers which models of which vendors fail, and which credentials were asked to wait. It lives in one
// replica's memory: each learns from its own calls. It is safe for concurrent use and implements routing.View.
type Health struct {
	options HealthOptions

	mu       sync.Mutex
	circuits map[modelKey]*circuit
	pauses   map[pauseKey]time.Time
}

// HealthOptions are the operator's settings.
type HealthOptions struct {
	// Threshold is how many failures in a row open a circuit; 0 switches the breaker off.
	Threshold int
	// Cooldown is how long an open circuit keeps calls away before one probe.
	Cooldown time.Duration
	// MaxPause is the longest pause that is honoured; 0 switches pauses off.
	MaxPause time.Duration
	// Changed is told of every change of a circuit's state.
	Changed func(vendor, model string, from, to CircuitState)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// CircuitState is a circuit's state, with the number that the metric shows.
type CircuitState int

// The states.
const (
	Closed   CircuitState = 0
	Open     CircuitState = 1
	HalfOpen CircuitState = 2
)

func (s CircuitState) String() string { return [...]string{"closed", "open", "half_open"}[s] }

type modelKey struct{ vendor, model string }

type pauseKey struct{ vendor, credential, model string }

type circuit struct {
	state    CircuitState
	failures int
	openedAt time.Time
	// turn counts the changes of state.
	turn Turn
}

// NewHealth returns a Health in which everything is well.
func NewHealth(options HealthOptions) *Health {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Changed == nil {
		options.Changed = func(string, string, CircuitState, CircuitState) {}
	}
	return &Health{options: options, circuits: map[modelKey]*circuit{}, pauses: map[pauseKey]time.Time{}}
}

// CircuitOpen implements routing.View: true until the cooldown is over.
func (h *Health) CircuitOpen(vendor, model string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.circuits[modelKey{vendor, model}]
	return c != nil && !h.admits(c)
}

func (h *Health) admits(c *circuit) bool {
	switch c.state {
	case Open:
		return h.options.Now().Sub(c.openedAt) >= h.options.Cooldown
	case HalfOpen:
		return false // the one probe is on its way
	default:
		return true
	}
}

// Paused implements routing.View.
func (h *Health) Paused(vendor, credential, model string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := pauseKey{vendor, credential, model}
	until, found := h.pauses[key]
	if !found {
		return 0
	}
	left := until.Sub(h.options.Now())
	if left <= 0 {
		delete(h.pauses, key)
		return 0
	}
	return left
}

// Turn is a stretch of time in which a circuit kept its state. What an attempt of an earlier turn ends in says nothing
// about this one.
type Turn int

// Begin asks leave for one attempt. After the cooldown it grants a single probe; the attempt's end must be reported
// with Succeeded, Failed or Unjudged, and its turn.
func (h *Health) Begin(vendor, model string) (Turn, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.circuits[modelKey{vendor, model}]
	switch {
	case c == nil:
		return 0, true
	case c.state == Closed:
		return c.turn, true
	case !h.admits(c):
		return 0, false
	}
	h.move(vendor, model, c, HalfOpen)
	return c.turn, true
}

// Succeeded closes the circuit.
func (h *Health) Succeeded(vendor, model string, turn Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.circuits[modelKey{vendor, model}]; c != nil && c.turn == turn {
		c.failures = 0
		h.move(vendor, model, c, Closed)
	}
}

// Failed counts a failure that is the vendor's fault.
func (h *Health) Failed(vendor, model string, turn Turn) {
	if h.options.Threshold <= 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := modelKey{vendor, model}
	c := h.circuits[key]
	if c == nil {
		c = &circuit{}
		h.circuits[key] = c
	}
	if c.turn != turn {
		return
	}
	c.failures++
	if c.state == HalfOpen || c.failures >= h.options.Threshold {
		c.openedAt = h.options.Now()
		h.move(vendor, model, c, Open)
	}
}

// Unjudged ends an attempt that says nothing about the vendor, such as one that the caller gave up. A probe of that
// kind leaves the circuit open for the next probe.
func (h *Health) Unjudged(vendor, model string, turn Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.circuits[modelKey{vendor, model}]; c != nil && c.turn == turn && c.state == HalfOpen {
		h.move(vendor, model, c, Open) // openedAt stays, so the next call may probe at once
	}
}

// Pauses reports whether vendors may start pauses at all.
func (h *Health) Pauses() bool { return h.options.MaxPause > 0 }

// Pause keeps a credential away from a model. It reports whether a pause began.
func (h *Health) Pause(vendor, credential, model string, wait time.Duration) bool {
	wait = min(wait, h.options.MaxPause)
	if wait <= 0 {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pauses[pauseKey{vendor, credential, model}] = h.options.Now().Add(wait)
	return true
}

func (h *Health) move(vendor, model string, c *circuit, to CircuitState) {
	if c.state != to {
		h.options.Changed(vendor, model, c.state, to)
		c.state = to
		c.turn++
	}
}
