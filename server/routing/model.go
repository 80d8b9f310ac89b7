package routing

import (
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/status"
)

// auto is the model name that leaves the choice to Keystone, and the prefix of those that narrow it.
const auto = "auto"

// Choice is what a model name asks for.
type Choice struct {
	// Exact is a model of the catalogue; empty means automatic routing.
	Exact string
	// Effort and Placement are what the name pins; zero when it says nothing about them.
	Effort    ktmsv1.Effort
	Placement Placement
}

// ParseModel reads a model name: auto (or nothing), auto:<effort>, auto:<placement>, auto:<placement>:<effort>;
// anything else is the exact id of a model. Its error is a *status.Error.
func ParseModel(model string) (Choice, error) {
	if model == "" || model == auto {
		return Choice{}, nil
	}
	if !reserved(model) {
		return Choice{Exact: model}, nil
	}
	first, second, both := strings.Cut(strings.TrimPrefix(model, auto+":"), ":")
	if e, ok := levels[first]; ok && !both {
		return Choice{Effort: e}, nil
	}
	if p, ok := placement(first); ok {
		if !both {
			return Choice{Placement: p}, nil
		}
		if e, ok := levels[second]; ok {
			return Choice{Placement: p, Effort: e}, nil
		}
	}
	err := status.New(status.BadRequest, "model %q is not understood; use auto, auto:<effort>, auto:<placement> or "+
		"auto:<placement>:<effort>, where <effort> is low, medium or high and <placement> is nodes-first, nodes-only, "+
		"cloud-first or cloud-only", model)
	err.Param = "model"
	return Choice{}, err
}

// ParsePlacement reads the placement of a header or a body, in either spelling (nodes_only, nodes-only) or by an
// alias. Nothing stays nothing. Its error is a *status.Error.
func ParsePlacement(s string) (Placement, error) {
	if s == "" {
		return "", nil
	}
	if p, ok := placement(s); ok {
		return p, nil
	}
	err := status.New(status.BadRequest,
		"placement %q is unknown; use nodes_first, nodes_only, cloud_first or cloud_only", s)
	err.Param = "placement"
	return "", err
}

// ParseEffort reads an effort as OpenAI's reasoning_effort spells it: levels that Keystone lacks mean the nearest one
// that it has. Nothing stays unspecified. Its error is a *status.Error.
func ParseEffort(s string) (ktmsv1.Effort, error) {
	switch s {
	case "":
		return ktmsv1.Effort_EFFORT_UNSPECIFIED, nil
	case "none", "minimal":
		return ktmsv1.Effort_EFFORT_LOW, nil
	case "xhigh", "max":
		return ktmsv1.Effort_EFFORT_HIGH, nil
	}
	if e, ok := levels[s]; ok {
		return e, nil
	}
	err := status.New(status.BadRequest,
		"reasoning_effort %q is unknown; use none, minimal, low, medium, high, xhigh or max", s)
	err.Param = "reasoning_effort"
	return ktmsv1.Effort_EFFORT_UNSPECIFIED, err
}

var levels = map[string]ktmsv1.Effort{
	"low":    ktmsv1.Effort_EFFORT_LOW,
	"medium": ktmsv1.Effort_EFFORT_MEDIUM,
	"high":   ktmsv1.Effort_EFFORT_HIGH,
}

func placement(s string) (Placement, bool) {
	switch p := Placement(strings.ReplaceAll(s, "-", "_")); p {
	case NodesFirst, NodesOnly, CloudFirst, CloudOnly:
		return p, true
	case "nodes", "private", "self_hosted":
		return NodesOnly, true
	default:
		return "", false
	}
}
