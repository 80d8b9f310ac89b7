package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/ai-process/ktms/server/dispatch"
)

// Dependencies whose failed calls are counted.
const (
	// DependencyPostgres is the database, an SQLite file too: alerts know one name for it.
	DependencyPostgres = "postgres"
	DependencyKeyring  = "keyring"
)

// Metrics are all that the server exports.
type Metrics struct {
	Registry     *prometheus.Registry
	Dispatch     *dispatch.Metrics
	dependencies *prometheus.CounterVec
	legacy       *prometheus.CounterVec
}

// NewMetrics returns metrics in a registry of their own.
func NewMetrics() *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		dependencies: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ktms_dependency_errors_total", Help: "Failed calls to a dependency.",
		}, []string{"dependency", "operation"}),
		legacy: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ktms_legacy_headers_requests_total", Help: "Requests that still send a header's old name.",
		}, []string{"header"}),
	}
	// Exported at 0 from the start, so that increase() sees the first failure after a restart.
	for _, operation := range []string{"key_check", "admin", "config", "ping"} {
		m.dependencies.WithLabelValues(DependencyPostgres, operation)
	}
	m.dependencies.WithLabelValues(DependencyKeyring, "open")
	m.Registry.MustRegister(m.dependencies, m.legacy,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.Dispatch = dispatch.NewMetrics(m.Registry)
	return m
}

// DependencyFailed counts one failed call.
func (m *Metrics) DependencyFailed(dependency, operation string) {
	m.dependencies.WithLabelValues(dependency, operation).Inc()
}

// LegacyHeader counts one request that sent a header's old name.
func (m *Metrics) LegacyHeader(name string) { m.legacy.WithLabelValues(name).Inc() }
