package noderegistry

import (
	"fmt"
	"math"
	"strings"
	"unicode"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/status"
)

// What nodes report is stored and read with every choice, so all of it has bounds, far above what machines have.
const (
	maxModels = 1000
	maxGPUs   = 64
	// maxReported is how large the ids and capabilities of all models may be together, in bytes.
	maxReported = 512 << 10
	// maxID is the longest id of a model, in bytes; a path to a file of weights fits.
	maxID = 512
	// maxCapabilities is how many a model may have, and maxCapability the longest, in bytes.
	maxCapabilities = 32
	maxCapability   = 64
	// maxName is how much of a name is kept, in characters, maxVersion of the agent's version, maxTrouble of a trouble.
	maxName    = 128
	maxVersion = 64
	maxTrouble = 500
	// maxToken is the longest bearer token, in bytes: what a header takes everywhere.
	maxToken = 4096
	// maxConcurrent is how many slots one node may have. Engines batch hundreds of requests at most.
	maxConcurrent = 10_000
	// maxContext is where a context counts as this, in tokens: amounts of tokens stay exact up to there.
	maxContext = 1 << 40
	// maxMistakes is how many mistakes one refusal lists.
	maxMistakes = 20
	// fullPercent is a GPU that works all the time; drivers overshoot.
	fullPercent = 100
)

// mistakes collects what is wrong with a report.
type mistakes []status.Violation

func (m *mistakes) add(path, format string, args ...any) {
	if len(*m) < maxMistakes {
		*m = append(*m, status.Violation{Path: path, Text: fmt.Sprintf(format, args...)})
	}
}

func (m *mistakes) err() error {
	if len(*m) == 0 {
		return nil
	}
	return status.Invalid(*m)
}

// names judges the ids of models.
func (m *mistakes) names(path string, ids []string) {
	if len(ids) > maxModels {
		m.add(path, "has %d models, more than %d; name those to serve with --only-model", len(ids), maxModels)
		return
	}
	for i, id := range ids {
		m.name(fmt.Sprintf("%s[%d]", path, i), id, maxID)
	}
}

func (m *mistakes) name(path, name string, longest int) {
	switch {
	case name == "":
		m.add(path, "is empty")
	case len(name) > longest:
		m.add(path, "has %d bytes, more than %d", len(name), longest)
	case strings.ContainsFunc(name, unprintable):
		m.add(path, "has control characters")
	}
}

func (m *mistakes) reported(models []*ktmsv1.NodeModel, gpus []*ktmsv1.NodeGPU) {
	if len(models) > maxModels {
		m.add("models", "has %d models, more than %d; name those to serve with --only-model", len(models), maxModels)
		models = nil
	}
	size := 0
	for i, model := range models {
		path := fmt.Sprintf("models[%d]", i)
		size += len(model.GetId())
		for _, capability := range model.GetCapabilities() {
			size += len(capability)
		}
		m.name(path+".id", model.GetId(), maxID)
		if n := len(model.GetCapabilities()); n > maxCapabilities {
			m.add(path+".capabilities", "has %d capabilities, more than %d", n, maxCapabilities)
			continue
		}
		for j, capability := range model.GetCapabilities() {
			m.name(fmt.Sprintf("%s.capabilities[%d]", path, j), capability, maxCapability)
		}
	}
	if size > maxReported {
		m.add("models", "have %d bytes of ids and capabilities, more than %d; name those to serve with --only-model", size, maxReported)
	}
	if len(gpus) > maxGPUs {
		m.add("gpus", "has %d GPUs, more than %d", len(gpus), maxGPUs)
	}
}

// specOf is what a node registers with, but for its endpoint and its token.
func specOf(req *ktmsv1.RegisterNodeRequest, key *caller.Caller) (pool.NodeSpec, error) {
	var found mistakes
	found.reported(req.GetModels(), req.GetGpus())
	if weight := req.GetBaseWeight(); weight > selection.MaxBaseWeight {
		found.add("base_weight", "is %d, more than %d", weight, selection.MaxBaseWeight)
	}
	if slots := req.GetMaxConcurrent(); slots > maxConcurrent {
		found.add("max_concurrent", "is %d, more than %d", slots, maxConcurrent)
	}
	// The token itself is in no message.
	switch token := req.GetAuthToken(); {
	case len(token) > maxToken:
		found.add("auth_token", "has %d bytes, more than %d", len(token), maxToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		found.add("auth_token", "has blanks, control characters or letters beyond ASCII, which no header carries")
	}
	if err := found.err(); err != nil {
		return pool.NodeSpec{}, err
	}
	spec := pool.NodeSpec{
		ID: key.NodeID, Name: clean(req.GetName(), maxName), Engine: req.GetEngine(), KeyID: key.KeyID,
		Networks: key.AllowedCIDRs, AllowedModels: key.AllowedModels,
		BaseWeight: int64(req.GetBaseWeight()), MaxConcurrent: max(int64(req.GetMaxConcurrent()), 1),
		AgentVersion: clean(req.GetAgentVersion(), maxVersion), Instance: req.GetInstance(),
	}
	if spec.BaseWeight == 0 {
		spec.BaseWeight = selection.DefaultBaseWeight
	}
	return spec, nil
}

// reportOf is what a heartbeat says, but for models that the key does not allow.
func reportOf(req *ktmsv1.HeartbeatRequest, key *caller.Caller) (pool.NodeReport, error) {
	var found mistakes
	found.reported(req.GetModels(), req.GetGpus())
	if err := found.err(); err != nil {
		return pool.NodeReport{}, err
	}
	report := pool.NodeReport{
		Draining: req.GetDraining(), Trouble: clean(req.GetTrouble(), maxTrouble), Level: levelOf(req.LevelPercent),
		Active: count(req.ActiveRequests), Waiting: count(req.QueueDepth), GPUs: gpusOf(req.GetGpus()),
	}
	report.Models, _ = allowed(key, modelsOf(req.GetModels()))
	return report, nil
}

// modelsOf keeps the first of models with the same id.
func modelsOf(reported []*ktmsv1.NodeModel) []pool.NodeModel {
	models := make([]pool.NodeModel, 0, len(reported))
	seen := make(map[string]bool, len(reported))
	for _, m := range reported {
		if seen[m.GetId()] {
			continue
		}
		seen[m.GetId()] = true
		models = append(models, pool.NodeModel{ID: m.GetId(), Warm: m.GetIsWarm(), Context: min(m.GetContextLength(), maxContext),
			Capabilities: m.GetCapabilities()})
	}
	return models
}

// gpusOf takes values that no GPU has for unknown: a wrong number would take a node out, or keep it in.
func gpusOf(reported []*ktmsv1.NodeGPU) []pool.NodeGPU {
	gpus := make([]pool.NodeGPU, 0, len(reported))
	for _, g := range reported {
		gpu := pool.NodeGPU{Name: clean(g.GetName(), maxName), MemoryTotal: positive(g.MemoryTotalBytes), MemoryFree: positive(g.MemoryFreeBytes)}
		if c := g.TemperatureCelsius; c != nil && !math.IsNaN(*c) && !math.IsInf(*c, 0) {
			gpu.Celsius = c
		}
		if u := g.UtilizationPercent; u != nil && *u >= 0 && !math.IsInf(*u, 0) {
			gpu.Utilization = new(min(*u, fullPercent))
		}
		gpus = append(gpus, gpu)
	}
	return gpus
}

// count is a number of requests; a negative one is none that was counted.
func count(n *int32) *int64 {
	if n == nil || *n < 0 {
		return nil
	}
	return new(int64(*n))
}

func positive(n *int64) *int64 {
	if n == nil || *n < 0 {
		return nil
	}
	return n
}

// clean makes a text fit for logs and lists: one line, nothing invisible, at most so many characters.
func clean(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unprintable(r) {
			return ' '
		}
		return r
	}, text)
	kept := 0
	for i := range text {
		if kept++; kept > most {
			text = text[:i]
			break
		}
	}
	return strings.TrimSpace(text)
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// levelOf is a level that a node may leave out.
func levelOf(percent *int32) int64 {
	if percent == nil {
		return selection.FullLevel
	}
	return int64(*percent)
}
