// Package noderegistry is the door of the machines that serve models: NodeRegistryService over the pool.
//
// A node key is bound to one node. What a node says of itself is believed about itself alone, and within bounds: it can
// take neither another's id nor a model that its key does not allow, nor name an endpoint inside the network.
package noderegistry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/status"
)

// maxLoggedModels is how many ignored models one line of the log names.
const maxLoggedModels = 10

// Options is what a Handler needs.
type Options struct {
	Nodes pool.Nodes
	// Seal encrypts a node's bearer token so that only the same node's row opens it.
	Seal func(nodeID string, plain []byte) []byte
	// CheckEndpoint reads an endpoint, resolves its host, and returns it in one spelling. It refuses what is neither public
	// nor in one of the networks, with an *EndpointError where the node may know why.
	CheckEndpoint func(ctx context.Context, raw string, allowed []netip.Prefix) (string, error)
	// Interval is the time between heartbeats that nodes are asked for, and TTL how long one that is not heard of is not
	// offline yet.
	Interval, TTL time.Duration
	// Sweep is how long a replica may act on an old state of a node.
	Sweep time.Duration
	// InCatalogue reports whether requests reach a model on the pool.
	InCatalogue func(model string) bool
	// Settled is after how long a Fleet is no older than what was done before; 0 = DefaultSettled.
	Settled   time.Duration
	Validator *status.Validator
	Log       *slog.Logger
	// Now is the clock of this process; nil is time.Now.
	Now func() time.Time
}

// Handler implements NodeRegistryService.
type Handler struct {
	options Options
	floods  floods
}

var _ ktmsv1connect.NodeRegistryServiceHandler = (*Handler)(nil)

// New returns a Handler.
func New(options Options) *Handler {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Settled == 0 {
		options.Settled = DefaultSettled
	}
	return &Handler{options: options}
}

// RegisterNode implements NodeRegistryService. Registering again replaces what the pool knows of the node.
func (h *Handler) RegisterNode(ctx context.Context, req *ktmsv1.RegisterNodeRequest) (*ktmsv1.RegisterNodeResponse, error) {
	key, err := h.admit(ctx, "RegisterNode", req)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	spec, err := specOf(req, key)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	models, ignored := allowed(key, modelsOf(req.GetModels()))
	if len(models) == 0 && len(ignored) > 0 {
		return nil, h.refusal(ctx, status.New(status.PermissionDenied, "%s", notPermitted(ignored[0])))
	}
	if spec.Endpoint, err = h.endpoint(ctx, req.GetEndpoint(), key); err != nil {
		return nil, h.refusal(ctx, err)
	}
	if err := h.unhurried(ctx, key, true); err != nil {
		return nil, h.refusal(ctx, err)
	}
	if token := req.GetAuthToken(); token != "" {
		spec.Token = h.options.Seal(spec.ID, []byte(token))
	}
	report := pool.NodeReport{Level: levelOf(req.LevelPercent), Models: models, GPUs: gpusOf(req.GetGpus())}
	if err := h.options.Nodes.Register(ctx, spec, report); err != nil {
		return nil, h.refusal(ctx, err)
	}
	h.options.Log.InfoContext(ctx, "node registered", "node", spec.ID, "engine", spec.Engine, "endpoint", spec.Endpoint,
		"models", len(models), "max_concurrent", spec.MaxConcurrent, "agent", spec.AgentVersion, "by", key.KeyName)
	if len(ignored) > 0 {
		h.options.Log.WarnContext(ctx, "a node reports models that its key does not allow; they are ignored", "node", spec.ID,
			"by", key.KeyName, "ignored", len(ignored), "models", ignored[:min(len(ignored), maxLoggedModels)])
	}
	out := &ktmsv1.RegisterNodeResponse{IgnoredModels: ignored, HeartbeatIntervalSeconds: h.interval(), SupportsLevels: true,
		SweepIntervalSeconds: int32(max(h.options.Sweep/time.Second, 1))}
	for _, m := range models {
		if !h.options.InCatalogue(m.ID) {
			out.UncataloguedModels = append(out.UncataloguedModels, m.ID)
		}
	}
	return out, nil
}

// Heartbeat implements NodeRegistryService. A node that the pool does not know is asked to register.
func (h *Handler) Heartbeat(ctx context.Context, req *ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) {
	key, err := h.admit(ctx, "Heartbeat", req)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	report, err := reportOf(req, key)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	switch run, err := h.standing(ctx, key.NodeID, req.GetInstance()); {
	case err != nil:
		return nil, h.refusal(ctx, err)
	case run == replaced:
		return nil, h.refusal(ctx, replacedError(key.NodeID))
	case run == alone:
		return &ktmsv1.HeartbeatResponse{RegisterAgain: true, HeartbeatIntervalSeconds: h.interval()}, nil
	}
	node, load, err := h.options.Nodes.Beat(ctx, key.NodeID, report)
	if errors.Is(err, pool.ErrUnknownNode) {
		return &ktmsv1.HeartbeatResponse{RegisterAgain: true, HeartbeatIntervalSeconds: h.interval()}, nil
	}
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	health, _ := node.Health(node.HeartbeatAt, h.options.TTL) // the heartbeat was taken in just now
	return &ktmsv1.HeartbeatResponse{State: stateOf(health), ActiveProxyRequests: int32(load.InFlight),
		HeartbeatIntervalSeconds: h.interval(), Draining: node.Drained}, nil
}

// UnregisterNode implements NodeRegistryService. A node that is not there has left already. One that an administrator drained
// is remembered until it was not heard of for long: whoever restarts its agent does not put it back by that.
func (h *Handler) UnregisterNode(ctx context.Context, req *ktmsv1.UnregisterNodeRequest) (*ktmsv1.UnregisterNodeResponse, error) {
	key, err := h.admit(ctx, "UnregisterNode", req)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	if run, err := h.standing(ctx, key.NodeID, req.GetInstance()); run != speaks || err != nil {
		if err == nil {
			return &ktmsv1.UnregisterNodeResponse{}, nil // it has left with that
		}
		return nil, h.refusal(ctx, err)
	}
	node, _, err := h.options.Nodes.Beat(ctx, key.NodeID, pool.NodeReport{Draining: true})
	switch {
	case errors.Is(err, pool.ErrUnknownNode):
		return &ktmsv1.UnregisterNodeResponse{}, nil
	case err != nil:
		return nil, h.refusal(ctx, err)
	case node.Drained:
		h.options.Log.InfoContext(ctx, "node left, and is still drained when it comes back", "node", key.NodeID, "by", key.KeyName)
		return &ktmsv1.UnregisterNodeResponse{}, nil
	}
	removed, err := h.options.Nodes.Remove(ctx, key.NodeID, "")
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	if removed {
		h.options.Log.InfoContext(ctx, "node left", "node", key.NodeID, "by", key.KeyName)
	}
	return &ktmsv1.UnregisterNodeResponse{}, nil
}

// VetModels implements NodeRegistryService. It stores nothing.
func (h *Handler) VetModels(ctx context.Context, req *ktmsv1.VetModelsRequest) (*ktmsv1.VetModelsResponse, error) {
	key, err := h.admit(ctx, "VetModels", req)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	var found mistakes
	found.names("models", req.GetModels())
	if err := found.err(); err != nil {
		return nil, h.refusal(ctx, err)
	}
	out := &ktmsv1.VetModelsResponse{}
	for _, model := range req.GetModels() {
		verdict := &ktmsv1.ModelVerdict{Model: model, Allowed: permits(key, model), InCatalogue: h.options.InCatalogue(model)}
		if !verdict.GetAllowed() {
			verdict.Reason = notPermitted(model)
		}
		out.Verdicts = append(out.Verdicts, verdict)
	}
	if endpoint := req.GetEndpoint(); endpoint != "" {
		if _, err := h.endpoint(ctx, endpoint, key); err != nil {
			out.EndpointProblem = status.As(err).Message()
		}
	}
	return out, nil
}

// nodeMessage is a request that names the node it comes from.
type nodeMessage interface {
	proto.Message
	GetNodeId() string
}

// admit returns the key behind a call, which has to be that of the node that the call is about, and validates the call.
func (h *Handler) admit(ctx context.Context, operation string, req nodeMessage) (*caller.Caller, error) {
	key := caller.From(ctx)
	if key.NodeID == "" {
		return nil, status.New(status.PermissionDenied, "only a node key opens the node registry; MintNodeKey makes one")
	}
	if err := h.unhurried(ctx, key, false); err != nil {
		return nil, err
	}
	if req.GetNodeId() != key.NodeID {
		h.options.Log.WarnContext(ctx, "a node key was used for another node", "operation", operation, "by", key.KeyName,
			"node", key.NodeID, "claimed", clean(req.GetNodeId(), maxName), "request_id", caller.RequestID(ctx))
		return nil, status.New(status.PermissionDenied, "key belongs to node %q", key.NodeID)
	}
	return key, h.options.Validator.Validate(req)
}

// unhurried refuses what a node does too often.
func (h *Handler) unhurried(ctx context.Context, key *caller.Caller, registers bool) error {
	refused, tell := h.floods.admit(key.NodeID, registers, h.options.Now())
	if refused == nil {
		return nil
	}
	if tell {
		h.options.Log.WarnContext(ctx, "a node calls too often, and is refused until it does less", "node", key.NodeID, "by", key.KeyName,
			"error", refused)
	}
	return refused
}

// refusal turns an error into the node's.
func (h *Handler) refusal(ctx context.Context, err error) error {
	var known *status.Error
	switch {
	case errors.As(err, &known):
	case errors.Is(err, pool.ErrUnavailable):
		h.options.Log.WarnContext(ctx, "the pool failed a node", "node", caller.From(ctx).NodeID, "error", err)
		known = status.Wrap(err, status.StorageUnavailable, "the pool's state is not reachable; retry with backoff")
	case errors.Is(err, context.Canceled):
		known = status.Wrap(err, status.Canceled, "the caller went away")
	case errors.Is(err, context.DeadlineExceeded):
		known = status.Wrap(err, status.DeadlineExceeded, "the call's deadline passed")
	default:
		h.options.Log.ErrorContext(ctx, "a call of a node failed", "node", caller.From(ctx).NodeID, "error", err)
		known = status.As(err)
	}
	return status.RPC(known)
}

func (h *Handler) interval() int32 { return int32(max(h.options.Interval/time.Second, 1)) }

func permits(key *caller.Caller, model string) bool {
	return len(key.AllowedModels) == 0 || slices.Contains(key.AllowedModels, model)
}

// notPermitted is what the agent and its doctor recognise.
func notPermitted(model string) string {
	return fmt.Sprintf("model %q not permitted for this node key", model)
}

// allowed parts models into those that a key allows and the ids of the others.
func allowed(key *caller.Caller, models []pool.NodeModel) (kept []pool.NodeModel, ignored []string) {
	for _, m := range models {
		if permits(key, m.ID) {
			kept = append(kept, m)
		} else {
			ignored = append(ignored, m.ID)
		}
	}
	return kept, ignored
}

// states are the pool's in the API's words. A trial is a broken circuit that has cooled down.
var states = map[selection.Health]ktmsv1.NodeState{
	selection.Offline:  ktmsv1.NodeState_NODE_STATE_OFFLINE,
	selection.Draining: ktmsv1.NodeState_NODE_STATE_DRAINING,
	selection.Broken:   ktmsv1.NodeState_NODE_STATE_CIRCUIT_BROKEN,
	selection.Trial:    ktmsv1.NodeState_NODE_STATE_CIRCUIT_BROKEN,
	selection.Suspect:  ktmsv1.NodeState_NODE_STATE_SUSPECT,
	selection.Healthy:  ktmsv1.NodeState_NODE_STATE_HEALTHY,
}

func stateOf(health selection.Health) ktmsv1.NodeState { return states[health] }
