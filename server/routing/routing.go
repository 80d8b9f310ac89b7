// Package routing decides which models may answer a request, and in which order.
//
// Compile turns the stored configuration into an immutable Table; Plan asks it. Plan is pure: no I/O, no clock, no
// randomness. What changes by itself (open circuits, paused credentials, nodes) comes in as a View, and ExplainRoute
// prints the very Plan that a call would walk.
package routing

import (
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// Placement says where a request may run.
type Placement string

// The placements. Self-hosted are the vendors local and ollama (and the built-in demo).
const (
	NodesFirst Placement = "nodes_first"
	NodesOnly  Placement = "nodes_only"
	CloudFirst Placement = "cloud_first"
	CloudOnly  Placement = "cloud_only"
)

// Mode says how a request was routed, as the X-KTMS-Route-Mode header spells it.
type Mode string

// The modes.
const (
	// ModeDirect: the caller gave the effort.
	ModeDirect Mode = "direct"
	// ModeOverride: the caller gave the exact model.
	ModeOverride Mode = "override"
	// ModeAutoEffort: auto routing with an effort that the caller pinned.
	ModeAutoEffort Mode = "auto-effort"
	// ModeAutoDefault: auto routing without an effort and without a judge.
	ModeAutoDefault Mode = "auto-default"
	// ModeAutoJudge: auto routing with an effort that a judge chose.
	ModeAutoJudge Mode = "auto-judge"
)

// Modality names the calls that carry no effort. Text is empty.
type Modality string

// The modalities, as the reserved attribute spells them.
const (
	Text   Modality = ""
	Speech Modality = "tts"
	Image  Modality = "image"
	Judge  Modality = "judge"
)

// Attributes that Keystone sets itself and that steer the weighted pick.
const (
	AttrModality   = "modality"
	AttrOrgID      = "org_id"
	AttrTeamID     = "team_id"
	AttrUserID     = "user_id"
	AttrCanaryKey  = "canary_key"
	AttrCanaryMode = "canary_mode"
)

// Query is what routing needs of a request of any kind.
type Query struct {
	// Model is the exact model asked for; empty lets the rules choose.
	Model string
	// Effort is ignored with Model and with a Modality.
	Effort   ktmsv1.Effort
	Modality Modality
	Mode     Mode
	// Attributes are the caller's own; org_id and team_id come from the key.
	Attributes map[string]string
	// Placement is empty for the default, nodes_first.
	Placement Placement
	// Needs are the capabilities that a model must declare.
	Needs []string
	// Tokens are the estimated prompt and answer together; 0 is unknown.
	Tokens int64
	// Draw, in [0,1), decides a weighted pick that is not sticky.
	Draw float64
	// Unrestricted lifts the model lists of the key and of its team, for the calls that Keystone makes by itself (the
	// judge of an automatic effort, the judge of shadow answers). Callers never set it.
	Unrestricted bool
}

// Choose sets how the request is routed, and the effort where that follows from it. A call and ExplainRoute ask here, so
// that they cannot disagree. auto and specified are the request's auto_route and effort_specified.
func (q *Query) Choose(auto, specified bool) {
	switch {
	case q.Model != "":
		q.Mode = ModeOverride
	case !auto:
		q.Mode = ModeDirect
	case specified && q.Effort != ktmsv1.Effort_EFFORT_UNSPECIFIED:
		q.Mode = ModeAutoEffort
	default:
		q.Mode, q.Effort = ModeAutoDefault, ktmsv1.Effort_EFFORT_MEDIUM
	}
}

// View is a snapshot of what changes by itself. A nil View means that everything is well.
type View interface {
	// CircuitOpen reports whether the breaker keeps calls away from the vendor's model.
	CircuitOpen(vendor, model string) bool
	// Speaks reports whether this release has a dialect for the vendor.
	Speaks(vendor string) bool
	// Paused returns how long the vendor asked this credential to wait with this model; 0 = not at all.
	Paused(vendor, credential, model string) time.Duration
	// Absent says why no machine of the local pool could serve the model now; "" = one may.
	Absent(model string) string
}

// Drop says why a candidate is left out.
type Drop string

// The reasons, as RouteCandidate.reason spells them. Empty means kept.
const (
	Kept             Drop = ""
	DropUnknown      Drop = "unknown_model"
	DropDisabled     Drop = "disabled"
	DropKeyPolicy    Drop = "key_policy"
	DropTeamPolicy   Drop = "team_policy"
	DropNoVendorKey  Drop = "no_vendor_key"
	DropEffort       Drop = "effort"
	DropCapability   Drop = "capability"
	DropPlacement    Drop = "placement"
	DropContext      Drop = "context_length"
	DropUnspoken     Drop = "vendor_not_spoken"
	DropCircuitOpen  Drop = "circuit_open"
	DropVendorPaused Drop = "vendor_paused"
	DropNoNode       Drop = "no_node"
)

// Candidate is one model of a chain.
type Candidate struct {
	// Spec is nil for DropUnknown. Readers must not change it.
	Spec   *ktmsv1.ModelSpec
	Target vendors.Target
	// Credential identifies the vendor key without revealing it (its fingerprint); clients that share one share pauses.
	Credential string
	Drop       Drop
	// Detail is Drop in a sentence; empty when kept.
	Detail string
	// Wait is how long the pause lasts, with DropVendorPaused.
	Wait time.Duration
}

// Plan is the answer to a Query.
type Plan struct {
	// Rule is empty on override.
	Rule      string
	Mode      Mode
	Effort    ktmsv1.Effort
	Placement Placement
	// Candidates stand in the order of the walk, dropped ones included. Plan's error says whether any is kept.
	Candidates []Candidate
	// Version is the configuration's version.
	Version int64
}
