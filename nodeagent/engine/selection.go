package engine

import (
	"slices"
	"strings"
	"unicode"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// maxName is the longest name that a registry takes, in bytes; a path to a file of weights fits.
const maxName = 512

// CapabilityJudge marks a model that decides instead of chatting.
const CapabilityJudge = "judge"

// Selection says which of an engine's models a node reports, and as what.
type Selection struct {
	// Only names the models to report; empty reports all.
	Only []string
	// Judges names the models that get CapabilityJudge.
	Judges []string
}

// Apply lists what the node reports, and the names in the selection that the engine has no model for. A model is reported
// under the name that the selection uses, and else under every name the engine answers to: the registry's model ids are
// spelled by other people, and must match one of them exactly. Whatever an engine lists, a registry can take the report.
func (s Selection) Apply(models []Model) (reported []*ktmsv1.NodeModel, missing []string) {
	seen := map[string]bool{}
	for _, m := range models {
		for _, name := range s.namesOf(m) {
			if seen[name] || !reportable(name) {
				continue
			}
			seen[name] = true
			report := &ktmsv1.NodeModel{Id: name, IsWarm: m.Warm, ContextLength: max(m.ContextLength, 0)}
			if slices.ContainsFunc(s.Judges, m.Is) {
				report.Capabilities = []string{CapabilityJudge}
			}
			reported = append(reported, report)
		}
	}
	for _, name := range slices.Concat(s.Only, s.Judges) {
		has := func(m Model) bool { return m.Is(name) }
		if !slices.ContainsFunc(models, has) && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	return reported, missing
}

// reportable reports whether a registry takes a name.
func reportable(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

func (s Selection) namesOf(m Model) []string {
	all := append([]string{m.ID}, m.Aliases...)
	if len(s.Only) == 0 {
		return all
	}
	var names []string
	for _, name := range s.Only {
		if m.Is(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
