package pooltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

// fleetWithin is how long a client may answer with a fleet of before.
const fleetWithin = time.Minute

// TestNodes is the suite that every implementation of pool.Nodes runs. open makes two clients of one pool that knows no
// node yet, takes the time from the clock, and keeps nodes for 24 hours. They are closed when the test ends.
func TestNodes(t *testing.T, open func(t *testing.T, clock *Clock) []pool.Nodes) {
	for _, subject := range nodeSubjects {
		t.Run(subject.name, func(t *testing.T) {
			for _, test := range subject.tests {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					clock := NewClock(noon)
					test.run(&nodesHarness{failer: t, clients: open(t, clock), clock: clock, patience: fleetWithin})
				})
			}
		})
	}
}

var nodeSubjects = []struct {
	name  string
	tests []nodeTest
}{
	{"nodes", registryTests},
	{"generations", generationTests},
	{"slots", slotTests},
	{"leases of nodes", nodeLeaseTests},
	{"slots held idle", idleTests},
	{"circuits", circuitTests},
	{"prefixes", prefixTests},
	{"turns", turnTests},
	{"speeds", speedTests},
	{"choices", choiceTests},
	{"a clock that is set back", clockTests},
}

type nodeTest struct {
	name string
	run  func(h *nodesHarness)
}

// failer is the part of testing.T that the suite of the nodes needs, so that it can be shown to fail.
type failer interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// nodesHarness is a pool of nodes with what a test needs around it. What it does, it does by the one client and the other
// in turn.
type nodesHarness struct {
	failer
	clients  []pool.Nodes
	clock    *Clock
	patience time.Duration
	turn     int
	ids      int
}

func (h *nodesHarness) client() pool.Nodes {
	h.turn++
	return h.clients[h.turn%len(h.clients)]
}

func (h *nodesHarness) newID() pool.ID {
	h.ids++
	return pool.ID("lease-" + strconv.Itoa(h.ids))
}

func (h *nodesHarness) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatalf("%s: %v", h.clock.Now(), err)
	}
}

// spec is a node as most tests register it.
func spec(id string, slots int64) pool.NodeSpec {
	return pool.NodeSpec{ID: id, Engine: "vllm", Endpoint: "https://" + id + ".example", KeyID: "key-of-" + id, BaseWeight: 100, MaxConcurrent: slots}
}

// report is one of a node that has a model in memory and one that it has not.
func report() pool.NodeReport {
	return pool.NodeReport{Level: selection.FullLevel, Models: []pool.NodeModel{{ID: "model", Warm: true}, {ID: "other"}}}
}

// paced is the report of a node that gives a share of its time.
func paced(level int64) pool.NodeReport {
	r := report()
	r.Level = level
	return r
}

func (h *nodesHarness) register(spec pool.NodeSpec, report pool.NodeReport) {
	h.Helper()
	h.must(h.client().Register(h.Context(), spec, report))
}

// join registers a node with so many slots.
func (h *nodesHarness) join(id string, slots int64) {
	h.Helper()
	h.register(spec(id, slots), report())
}

func (h *nodesHarness) beat(id string, report pool.NodeReport) (pool.Node, pool.NodeLoad) {
	h.Helper()
	node, load, err := h.client().Beat(h.Context(), id, report)
	h.must(err)
	return node, load
}

func (h *nodesHarness) remove(id, keyID string) bool {
	h.Helper()
	was, err := h.client().Remove(h.Context(), id, keyID)
	h.must(err)
	return was
}

// contender is a node as most tests choose it: as good as any other, and with all its slots.
func contender(id string, slots int64) pool.Contender {
	return pool.Contender{
		Candidate:  selection.Candidate{Node: id, Base: 100, Perf: 1, Max: slots, Slots: slots},
		Generation: id + "/1",
	}
}

// choosing asks for a slot on one of the contenders, for a prompt of 10 tokens.
func (h *nodesHarness) choosing(contenders ...pool.Contender) pool.Choosing {
	return pool.Choosing{
		ID: h.newID(), TTL: lease, Model: "model", Contenders: contenders, Prompt: 10, Policy: selection.DefaultPolicy(),
	}
}

func (h *nodesHarness) choose(c pool.Choosing) pool.Chosen {
	h.Helper()
	chosen, err := h.client().Choose(h.Context(), c)
	h.must(err)
	return chosen
}

// take takes a slot where there must be one.
func (h *nodesHarness) take(c pool.Choosing) pool.Lease {
	h.Helper()
	chosen := h.choose(c)
	if chosen.Lease == nil {
		h.Fatalf("%s: no contender is free, %d slots are taken: %+v", h.clock.Now(), chosen.Occupied, c.Contenders)
	}
	return *chosen.Lease
}

// takeOn takes the slot of one node.
func (h *nodesHarness) takeOn(id string, slots int64) pool.Lease {
	h.Helper()
	return h.take(h.choosing(contender(id, slots)))
}

// wantFull tries what must not find a free slot.
func (h *nodesHarness) wantFull(c pool.Choosing) pool.Chosen {
	h.Helper()
	chosen := h.choose(c)
	if chosen.Lease != nil {
		h.Fatalf("%s: chosen %+v, want none: %+v", h.clock.Now(), *chosen.Lease, c.Contenders)
	}
	return chosen
}

func (h *nodesHarness) begun(lease pool.Lease) {
	h.Helper()
	h.must(h.client().Begun(h.Context(), lease))
}

func (h *nodesHarness) release(lease pool.Lease, outcome pool.Outcome) {
	h.Helper()
	h.releaseAs(pool.Release{Lease: lease, Outcome: outcome})
}

func (h *nodesHarness) releaseAs(release pool.Release) {
	h.Helper()
	h.must(h.client().Release(h.Context(), release))
}

// renew renews, and compares what is gone.
func (h *nodesHarness) renew(ttl time.Duration, renewals []pool.NodeRenewal, gone ...pool.ID) {
	h.Helper()
	got, err := h.client().Renew(h.Context(), renewals, ttl)
	h.must(err)
	if len(got)+len(gone) > 0 && !reflect.DeepEqual(got, gone) {
		h.Fatalf("%s: %q are gone, want %q", h.clock.Now(), got, gone)
	}
}

// load is where a node stands for the model of most tests.
func (h *nodesHarness) load(id string) pool.NodeLoad {
	h.Helper()
	loads, err := h.client().Loads(h.Context(), "model", []string{id})
	h.must(err)
	if len(loads) != 1 {
		h.Fatalf("%d loads of one node", len(loads))
	}
	return loads[0]
}

// wantLoad compares where a node stands, but for its current weight.
func (h *nodesHarness) wantLoad(id string, want pool.NodeLoad) {
	h.Helper()
	got := h.load(id)
	if got.Current = 0; got != want {
		h.Fatalf("%s stands at %+v at %s, want %+v", id, got, h.clock.Now(), want)
	}
}

// wantInFlight compares a node's leases and queued tokens.
func (h *nodesHarness) wantInFlight(id string, leases, queued int64) {
	h.Helper()
	if got := h.load(id); got.InFlight != leases || got.Queued != queued {
		h.Fatalf("%s has %d leases and %d tokens queued at %s, want %d and %d",
			id, got.InFlight, got.Queued, h.clock.Now(), leases, queued)
	}
}

// eventually waits until every client's fleet is as it should be.
func (h *nodesHarness) eventually(check func(fleet pool.Fleet) error) {
	h.Helper()
	for i, client := range h.clients {
		for deadline := time.Now().Add(h.patience); ; time.Sleep(time.Millisecond) {
			fleet, err := client.Fleet(h.Context())
			h.must(err)
			if err = check(fleet); err == nil {
				break
			}
			if time.Now().After(deadline) {
				h.Fatalf("the fleet of client %d at %s: %v", i, h.clock.Now(), err)
			}
		}
	}
}

// node waits until every client's fleet has a node that is as it should be, and returns it. check may be nil.
func (h *nodesHarness) node(id string, check func(node pool.Node) error) pool.Node {
	h.Helper()
	var found pool.Node
	h.eventually(func(fleet pool.Fleet) error {
		for _, node := range fleet.Nodes {
			if node.ID == id {
				found = node
				if check == nil {
					return nil
				}
				return check(node)
			}
		}
		return fmt.Errorf("%s is not there", id)
	})
	return found
}

// wantNode waits until every client shows a node as it should be. The generation is any.
func (h *nodesHarness) wantNode(want pool.Node) pool.Node {
	h.Helper()
	return h.node(want.ID, func(got pool.Node) error { return sameNode(got, want) })
}

// wantNodes waits until every client's fleet has these nodes, in this order.
func (h *nodesHarness) wantNodes(want ...string) {
	h.Helper()
	h.eventually(func(fleet pool.Fleet) error {
		got := []string{}
		for _, node := range fleet.Nodes {
			got = append(got, node.ID)
		}
		if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			return fmt.Errorf("has nodes %q, want %q", got, want)
		}
		return nil
	})
}

// wantUnknown compares an error with the one for nodes that are not registered.
func (h *nodesHarness) wantUnknown(what string, err error) {
	h.Helper()
	if !errors.Is(err, pool.ErrUnknownNode) || err == pool.ErrUnknownNode {
		h.Fatalf("%s: %v, want a wrapped %v", what, err, pool.ErrUnknownNode)
	}
}

// shown is what the fleet shows of a node that has just registered.
func (h *nodesHarness) shown(spec pool.NodeSpec, report pool.NodeReport) pool.Node {
	now := h.clock.Now()
	return pool.Node{NodeSpec: spec, NodeReport: report, RegisteredAt: now, HeartbeatAt: now, HeardAt: now}
}

// sameNode says where two nodes differ. A generation that is not wanted may be any.
func sameNode(got, want pool.Node) error {
	if got.Generation == "" {
		return fmt.Errorf("%s has no generation", got.ID)
	}
	if want.Generation == "" {
		want.Generation = got.Generation
	}
	for _, n := range []*pool.Node{&got, &want} {
		for _, at := range []*time.Time{&n.RegisteredAt, &n.HeartbeatAt, &n.HeardAt, &n.OpenedAt} {
			*at = at.UTC()
		}
		if len(n.Speeds) == 0 {
			n.Speeds = nil
		}
	}
	if reflect.DeepEqual(got, want) {
		return nil
	}
	return fmt.Errorf("node is\n%s, want\n%s", nodeText(got), nodeText(want))
}

// nodeText is a node with what its pointers point to.
func nodeText(n pool.Node) string {
	text, err := json.Marshal(n)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
