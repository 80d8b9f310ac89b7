package server

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/dispatch"
	"github.com/ai-process/ktms/server/noderegistry"
	"github.com/ai-process/ktms/server/status"
)

// Dependencies whose failed calls are counted.
const (
	// DependencyPostgres is the database, an SQLite file too: alerts know one name for it.
	DependencyPostgres = "postgres"
	DependencyKeyring  = "keyring"
	// DependencyRedis is what the counters of limits are in; without one they are in the process and never fail.
	DependencyRedis = "redis"
)

// throttles are the reasons for which limits refuse, as the label spells them.
var throttles = []status.Reason{
	status.ThrottledRPM, status.ThrottledKeyRPM, status.ThrottledKeyTPM, status.BudgetKey, status.BudgetUser,
	status.SpendKeyDaily, status.SpendKeyMonthly, status.SpendUserDaily, status.SpendUserMonthly, status.SpendTeamMonthly,
	status.SpendUnavailable,
}

// Metrics are all that the server exports.
type Metrics struct {
	Registry     *prometheus.Registry
	Dispatch     *dispatch.Metrics
	dependencies *prometheus.CounterVec
	legacy       *prometheus.CounterVec
	throttled    *prometheus.CounterVec
	nodes        *prometheus.GaugeVec
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
		throttled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ktms_throttled_total", Help: "Calls that a limit kept from a model; spend_unavailable is a limit whose counters did not answer.",
		}, []string{"reason"}),
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ktms_nodes", Help: "Nodes of the local pool by state, as this replica sees them.",
		}, []string{"state"}),
	}
	// Exported at 0 from the start, so that increase() sees the first failure after a restart.
	for _, operation := range []string{"key_check", "admin", "config", "ping"} {
		m.dependencies.WithLabelValues(DependencyPostgres, operation)
	}
	m.dependencies.WithLabelValues(DependencyKeyring, "open")
	for _, operation := range []string{"admit", "settle", "renew", "debit", "read", "book", "register", "beat", "remove", "drain",
		"reseal", "fleet", "loads", "holders", "choose", "begun", "renew_nodes", "release"} {
		m.dependencies.WithLabelValues(DependencyRedis, operation)
	}
	for _, reason := range throttles {
		m.throttled.WithLabelValues(throttleLabel(reason))
	}
	m.Registry.MustRegister(m.dependencies, m.legacy, m.throttled, m.nodes,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.Dispatch = dispatch.NewMetrics(m.Registry)
	return m
}

// DependencyFailed counts one failed call.
func (m *Metrics) DependencyFailed(dependency, operation string) {
	m.dependencies.WithLabelValues(dependency, operation).Inc()
}

// Throttled counts one call that a limit kept from a model.
func (m *Metrics) Throttled(reason status.Reason) {
	m.throttled.WithLabelValues(throttleLabel(reason)).Inc()
}

// Nodes says how many nodes are in each state; nil is that nobody knows.
func (m *Metrics) Nodes(counts map[ktmsv1.NodeState]int) {
	if counts == nil {
		m.nodes.Reset()
		return
	}
	for number := range ktmsv1.NodeState_name {
		if state := ktmsv1.NodeState(number); state != ktmsv1.NodeState_NODE_STATE_UNSPECIFIED {
			m.nodes.WithLabelValues(noderegistry.StateName(state)).Set(float64(counts[state]))
		}
	}
}

func throttleLabel(reason status.Reason) string {
	return strings.TrimPrefix(string(reason), "throttled:")
}

// LegacyHeader counts one request that sent a header's old name.
func (m *Metrics) LegacyHeader(name string) { m.legacy.WithLabelValues(name).Inc() }
