package dispatch

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Outcomes of an attempt, as the status label spells them.
const (
	outcomeSuccess  = "success"
	outcomeError    = "error"
	outcomeCanceled = "canceled"
)

// Metrics are what operators see of upstream calls. Labels hold catalogue ids only, never what callers send.
type Metrics struct {
	requests    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	firstToken  *prometheus.HistogramVec
	tokens      *prometheus.CounterVec
	cacheTokens *prometheus.CounterVec
	active      *prometheus.GaugeVec
	fallbacks   *prometheus.CounterVec
	cooldowns   *prometheus.CounterVec
	circuit     *prometheus.GaugeVec
	transitions *prometheus.CounterVec
	rejections  *prometheus.CounterVec
}

// callBuckets reach from a cached answer to a long stream, in seconds.
var callBuckets = []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640}

// NewMetrics creates the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: callBuckets}, labels)
	}
	m := &Metrics{
		requests: counter("ktms_requests_total", "Upstream calls by outcome; canceled is a caller that went away.",
			"vendor", "model", "effort", "status"),
		duration: histogram("ktms_request_duration_seconds", "Duration of upstream calls; for a stream, the whole stream.",
			"vendor", "model", "effort"),
		firstToken: histogram("ktms_time_to_first_token_seconds", "Time to the first streamed content.", "vendor", "model"),
		tokens:     counter("ktms_tokens_total", "Tokens consumed.", "vendor", "model", "type"),
		cacheTokens: counter("ktms_cache_tokens_total", "The part of input read from or written to the prompt cache.",
			"vendor", "model", "type"),
		active:    gauge("ktms_active_requests", "Upstream calls in flight.", "vendor", "model"),
		fallbacks: counter("ktms_fallbacks_total", "Moves down a fallback chain.", "from_model", "to_model", "reason"),
		cooldowns: counter("ktms_vendor_cooldowns_total", "Pauses started from a vendor's Retry-After.", "vendor", "model"),
		circuit:   gauge("ktms_circuit_breaker_state", "0 closed, 1 open, 2 half-open.", "vendor", "model"),
		transitions: counter("ktms_circuit_breaker_transitions_total", "Changes of a circuit's state.",
			"vendor", "model", "from", "to"),
		rejections: counter("ktms_circuit_breaker_rejections_total", "Calls that an open circuit refused.", "vendor", "model"),
	}
	registry.MustRegister(m.requests, m.duration, m.firstToken, m.tokens, m.cacheTokens, m.active, m.fallbacks,
		m.cooldowns, m.circuit, m.transitions, m.rejections)
	return m
}

// CircuitChanged is the hook for HealthOptions.Changed.
func (m *Metrics) CircuitChanged(vendor, model string, from, to CircuitState) {
	m.circuit.WithLabelValues(vendor, model).Set(float64(to))
	m.transitions.WithLabelValues(vendor, model, from.String(), to.String()).Inc()
}
