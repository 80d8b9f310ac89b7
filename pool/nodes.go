package pool

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/ai-process/ktms/pool/selection"
)

// ErrUnknownNode says that a node is not registered, or was forgotten. It comes wrapped.
var ErrUnknownNode = errors.New("unknown node")

// NodeSpec is what a node registers with. It stays until the node registers anew.
type NodeSpec struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Engine is ollama, vllm, …
	Engine string `json:"engine"`
	// Endpoint is the base URL that the gateway dials, checked.
	Endpoint string `json:"endpoint"`
	// Token is the engine's bearer token, sealed by those who can open it; empty = none. It means nothing to the pool.
	Token []byte `json:"token,omitempty"`
	// KeyID is the node key that the node registered with.
	KeyID string `json:"key_id"`
	// Networks are those that the endpoint may lie in beside public ones.
	Networks []netip.Prefix `json:"networks,omitempty"`
	// AllowedModels are those that the key allows; empty = any.
	AllowedModels []string `json:"allowed_models,omitempty"`
	BaseWeight    int64    `json:"base_weight"`
	// MaxConcurrent is the number of its slots, at least 1, whichever models it serves.
	MaxConcurrent int64  `json:"max_concurrent"`
	AgentVersion  string `json:"agent_version,omitempty"`
	// Instance names the run of the agent that registered; empty = it did not say.
	Instance string `json:"instance,omitempty"`
}

// NodeReport is what a node says of itself, at registration and with every heartbeat.
type NodeReport struct {
	Draining bool `json:"draining,omitempty"`
	// Trouble is why the node can serve nothing at the moment, in its own words; empty = it can.
	Trouble string `json:"trouble,omitempty"`
	// Level is the share of its time, in percent, that it gives to requests.
	Level int64 `json:"level"`
	// Active and Waiting count the requests in the engine, ours and others'; nil = it does not tell.
	Active  *int64      `json:"active,omitempty"`
	Waiting *int64      `json:"waiting,omitempty"`
	Models  []NodeModel `json:"models,omitempty"`
	GPUs    []NodeGPU   `json:"gpus,omitempty"`
}

// NodeModel is one model on a node.
type NodeModel struct {
	ID string `json:"id"`
	// Warm: its weights are in memory.
	Warm bool `json:"warm,omitempty"`
	// Context is how many tokens prompt and answer may have together; 0 = unknown.
	Context      int64    `json:"context,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
}

// NodeGPU is what a node tells of a GPU; nil = unknown.
type NodeGPU struct {
	Name        string   `json:"name,omitempty"`
	Celsius     *float64 `json:"celsius,omitempty"`
	Utilization *float64 `json:"utilization,omitempty"` // percent
	MemoryTotal *int64   `json:"memory_total,omitempty"`
	MemoryFree  *int64   `json:"memory_free,omitempty"`
}

// Node is a registered node as the pool knows it. Readers must not change what it points to.
type Node struct {
	NodeSpec
	NodeReport
	// RegisteredAt and HeartbeatAt are by the pool's clock. HeardAt is when the node counts as heard of: that is the
	// heartbeat, or the end of an outage in which the pool could not take it.
	RegisteredAt, HeartbeatAt, HeardAt time.Time
	// Counted is how many leases there were on the node when the last heartbeat was written.
	Counted int64
	// Drained: an administrator took it out.
	Drained bool
	// OpenedAt is when its circuit opened, zero while it is closed.
	OpenedAt time.Time
	// Generation names what the node's memory may hold. It changes when the node registers and when a model leaves its memory.
	Generation string
	// Speeds are by model, as the gateways measured them up to the last heartbeat.
	Speeds map[string]Speed
}

// Speed is how quickly a node answers for one model, averaged; 0 = unknown.
type Speed struct {
	// TTFT is the time to the first token in seconds.
	TTFT float64
	// TPS is the tokens per second after that.
	TPS float64
}

// Fleet is every registered node at one instant of the pool's clock, in the order of their ids.
type Fleet struct {
	Now   time.Time
	Nodes []Node
}

// NodeLoad is what changes with every request on a node.
type NodeLoad struct {
	// InFlight counts leases, Idle the slots that are held idle after a request (see selection.Idle).
	InFlight, Idle int64
	// Queued is how many tokens of prompts the node was sent and has not begun to answer.
	Queued int64
	// Current is the node's current weight in the round robin of the model that was asked about.
	Current int64
	// Failures are those in a row.
	Failures int64
	// Probing: the one request that tries a broken circuit is under way.
	Probing bool
}

// Contender is a node that a choice is made from.
type Contender struct {
	// Candidate comes from selection.Prepare. InFlight, Queued, Matched and Current are not read: the pool knows them.
	selection.Candidate
	// Generation is the node's.
	Generation string
	// Trial: the node's circuit has cooled down, and one request may try it.
	Trial bool
	// Paced: the node gives a share of its time only, so that slots held idle count as taken.
	Paced bool
}

// Choosing asks for a slot.
type Choosing struct {
	// ID names the lease. It is unique for ever and has no spaces or colons.
	ID ID
	// TTL is how long the lease lives unless it is renewed.
	TTL time.Duration
	// Model is what the turns of the round robin are kept by.
	Model string
	// Contenders are at most selection.MaxCandidates, in the order of their ids.
	Contenders []Contender
	// Prompt is the estimate of the prompt in tokens, Prefixes its beginnings, shortest first, or none.
	Prompt   int64
	Prefixes []selection.Prefix
	Policy   selection.Policy
}

// Lease is a slot that was taken.
type Lease struct {
	ID    ID
	Node  string
	Model string
	// Matched is how many tokens of the prompt the node is believed to hold, Queued the others, which it has to read, and
	// Ahead what it had been sent before and not begun to answer.
	Matched, Queued, Ahead int64
	// Turn is the state of the node's circuit in which the lease was taken: the instant at which the node was registered for
	// the first time since it was not, in microseconds, and one more for each change after that. Trial: the lease tries it.
	Turn  int64
	Trial bool
}

// Chosen is the outcome of a choice.
type Chosen struct {
	// Lease is nil when no contender has a free slot.
	Lease *Lease
	// Occupied counts the slots of all contenders that were taken before: leases, slots held idle where Paced, and foreign
	// load.
	Occupied int64
}

// NodeRenewal names a lease that goes on.
type NodeRenewal struct {
	Lease Lease
	// Restore takes the slot anew if the lease is gone and was not released: its call is running all the same. The node has
	// to be registered.
	Restore bool
}

// Outcome is what a call says about its node.
type Outcome int

// The outcomes.
const (
	// Unjudged: nothing, as when the caller left.
	Unjudged Outcome = iota
	// Succeeded closes the circuit.
	Succeeded
	// Failed counts towards opening it, and opens it at once after a trial.
	Failed
)

// Release gives a slot back.
type Release struct {
	Lease   Lease
	Outcome Outcome
	// Idle is how long the slot stays taken, since the node gives a share of its time only.
	Idle time.Duration
	// Measured is what the call showed of the node's speed; a 0 in it teaches nothing.
	Measured Speed
}

const (
	// BreakAfter is how many failures in a row take a node out.
	BreakAfter = 5
	// BreakCooldown is how long it is left alone then, before one request tries it.
	BreakCooldown = 30 * time.Second
	// TurnMemory is how long the turns of a model's round robin are kept after the last choice for it.
	TurnMemory = time.Hour
	// MaxTurns is of how many nodes a model's turns are kept: of those that took part last. Names that are never used again,
	// as in a fleet whose machines come and go, would add up otherwise.
	MaxTurns = 256
	// ReleaseMemory is how long a Release is remembered. Whoever repeats one, or renews what was released, has to give up
	// sooner.
	ReleaseMemory = 10 * time.Minute
	// PrefixMemory is how long a node is believed to hold a prompt. Engines throw out what was used least recently.
	PrefixMemory = 10 * time.Minute
	// MaxHolders is how many generations are believed to hold one prompt: the last ones that were sent it.
	MaxHolders = 256
	// SpeedGain is how much of a new measurement goes into an average: ten calls make a node's speed, one does not.
	SpeedGain = 0.1
)

// Nodes is the pool of machines that serve models: who is there, who has a free slot, whose turn it is. Implementations
// are safe for concurrent use and all see one clock, which is theirs. Every error but those named here and the context's
// own wraps ErrUnavailable; nothing is known of the nodes then, and nobody is to be sent to them.
//
// Slots belong to the node, not to a model. A lease ends by itself after its TTL unless it is renewed, and gives back
// exactly what it took, so that a gateway that dies blocks nothing for longer. Where the clock is set back, leases and slots
// held idle end by as much sooner from the node's next heartbeat on, as far as that tells by how much.
type Nodes interface {
	// Register adds a node, or replaces what is known of it. Leases, circuit, speeds and an administrator's drain stay. At
	// another endpoint circuit and speeds begin anew, and the outcomes of calls to the former one count no more.
	Register(ctx context.Context, spec NodeSpec, report NodeReport) error
	// Beat takes a heartbeat in, and returns the node as it is now with its leases; ErrUnknownNode when it has to register.
	// Here as in Register, another Level than the former one ends what is held idle.
	Beat(ctx context.Context, id string, report NodeReport) (Node, NodeLoad, error)
	// Remove forgets a node with all that belongs to it. With a keyID, only where the node registered with that key. It
	// reports whether there was one.
	Remove(ctx context.Context, id, keyID string) (bool, error)
	// Drain takes a node out for an administrator, or puts it back; ErrUnknownNode.
	Drain(ctx context.Context, id string, drained bool) error
	// Reseal replaces a node's token where it is still the former one, and reports whether it did.
	Reseal(ctx context.Context, id string, former, token []byte) (bool, error)

	// Fleet returns all nodes. It is cheap: implementations that are elsewhere answer from a cache that they are told to
	// drop.
	Fleet(ctx context.Context) (Fleet, error)
	// Loads returns where each of the nodes stands now, with their current weights for one model. It books nothing.
	Loads(ctx context.Context, model string, ids []string) ([]NodeLoad, error)
	// Holders reports for each generation whether it is believed to hold the deepest prefix that any of them holds.
	Holders(ctx context.Context, prefixes []selection.Prefix, generations []string) ([]bool, error)

	// Choose picks a contender as selection.Choose does and takes its slot, in one round trip: ended leases are healed,
	// counters read, prefixes matched, the turn taken, and all of it stored. A contender that is not registered, or whose circuit
	// is open, or is tried by another request, is not free. Without a free one nothing changes. After an outage in which leases may have
	// been lost none is free for a few seconds, in which calls that run are to renew theirs. An error takes no slot for long,
	// also where its outcome is not known.
	Choose(ctx context.Context, c Choosing) (Chosen, error)
	// Begun says that the node has read the prompt: its first token came.
	Begun(ctx context.Context, lease Lease) error
	// Renew lets leases live for another ttl, and returns those that were gone and not restored.
	Renew(ctx context.Context, leases []NodeRenewal, ttl time.Duration) (gone []ID, err error)
	// Release gives a slot back, once for each lease; of one that has ended only the outcome and the speed count. Like Begun
	// it does nothing to a node that is not registered.
	Release(ctx context.Context, release Release) error
}
