package pooltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ai-process/ktms/pool"
)

// NodesProperty leads a pool of nodes through one random sequence of choices, releases, renewals, heartbeats, crashes and
// the like, and returns the first thing that is not as it has to be:
//
//   - Each choice is that of selection.Choose on what a mirror of the pool knows.
//   - A node never has more leases than slots, but for those restored.
//   - What is queued on a node is the sum of what its leases have queued, and never negative.
//   - One request at most tries a broken node.
//   - Every node stands, and is shown, as the mirror says.
//   - In the end, when every lease is over, nothing is left on any node.
//
// The clients, of one pool, take their time from clock, which only moves forward. A pool may go through any number of
// sequences with different seeds, one after the other.
func NodesProperty(ctx context.Context, seed int64, clients []pool.Nodes, clock *Clock) error {
	return nodesProperty(ctx, seed, clients, clock, fleetWithin)
}

func nodesProperty(ctx context.Context, seed int64, clients []pool.Nodes, clock *Clock, patience time.Duration) error {
	r := &nodesRun{
		ctx: ctx, clients: clients, clock: clock, patience: patience, seed: seed,
		random: rand.New(rand.NewPCG(uint64(seed), 1)), mirror: newMirror(clock), seen: map[string]bool{},
	}
	return play(seed, clock, func(step int) (string, func() error) {
		if step < len(r.ids()) {
			return "register", r.register
		}
		return r.choose()
	}, r.check, r.end)
}

// nodesRun is one sequence.
type nodesRun struct {
	ctx      context.Context
	clients  []pool.Nodes
	clock    *Clock
	patience time.Duration
	seed     int64
	random   *rand.Rand
	mirror   *mirror
	// seen are the generations that there were.
	seen   map[string]bool
	leases int
}

// ids are those of the sequence's nodes, whether or not they are registered.
func (r *nodesRun) ids() []string {
	ids := make([]string, 0, 6)
	for i := range 1 + (uint64(r.seed)*7+3)%6 {
		ids = append(ids, fmt.Sprintf("node-%d-%d", r.seed, i))
	}
	return ids
}

func (r *nodesRun) id() string { return r.ids()[r.random.IntN(len(r.ids()))] }

func (r *nodesRun) model() string { return fmt.Sprintf("model-%d/%d", r.seed, r.random.IntN(2)) }

func (r *nodesRun) client() pool.Nodes { return r.clients[r.random.IntN(len(r.clients))] }

// choose picks the next step.
func (r *nodesRun) choose() (name string, act func() error) {
	switch pick := r.random.IntN(100); {
	case pick < 34:
		return "choose", r.choice
	case pick < 54:
		return "release", r.release
	case pick < 72:
		return "clock", r.advance
	case pick < 79:
		return "begun", r.begun
	case pick < 86:
		return "renew", r.renew
	case pick < 88:
		return "crash", r.crash
	case pick < 94:
		return "heartbeat", r.beat
	case pick < 96:
		return "register", r.register
	case pick < 97:
		return "remove", r.remove
	case pick < 98:
		return "drain", r.drain
	case pick < 99:
		return "reseal", r.reseal
	default:
		return "holders", r.holders
	}
}

// check compares where every node stands with the mirror, and with what must never be.
func (r *nodesRun) check() error {
	ids, model := append(r.ids(), "nobody"), r.model()
	loads, err := r.client().Loads(r.ctx, model, ids)
	if err != nil {
		return err
	}
	if len(loads) != len(ids) {
		return fmt.Errorf("%d loads of %d", len(loads), len(ids))
	}
	for i, id := range ids {
		got, want := loads[i], r.mirror.load(id, model)
		if got != want {
			return fmt.Errorf("%s stands at %+v for %s, want %+v", id, got, model, want)
		}
		if n := r.mirror.node(id); n != nil {
			restored, trials := int64(0), 0
			for _, l := range r.mirror.leases(n) {
				if l.restored {
					restored++
				}
				if l.probe {
					trials++
				}
			}
			if most := r.contender(id).Max + restored; got.InFlight > most || got.Queued < 0 || trials > 1 {
				return fmt.Errorf("%s stands at %+v with %d trials, want at most %d leases, no less than nothing queued, and one trial",
					id, got, trials, most)
			}
		}
	}
	if r.random.IntN(8) == 0 {
		return r.fleet()
	}
	return nil
}

// fleet waits until every client shows the mirror's nodes. A generation that is new must be one that there never was.
func (r *nodesRun) fleet() error {
	for _, client := range r.clients {
		for deadline := time.Now().Add(r.patience); ; time.Sleep(time.Millisecond) {
			fleet, err := client.Fleet(r.ctx)
			if err != nil {
				return err
			}
			if err = r.sameFleet(fleet); err == nil {
				break
			}
			if time.Now().After(deadline) {
				return err
			}
		}
	}
	return nil
}

func (r *nodesRun) sameFleet(fleet pool.Fleet) error {
	if !fleet.Now.Equal(r.clock.Now()) {
		return fmt.Errorf("the fleet is of %s", fleet.Now)
	}
	var want []*mirrored
	for _, id := range r.ids() {
		if n := r.mirror.node(id); n != nil {
			want = append(want, n)
		}
	}
	if len(fleet.Nodes) != len(want) {
		return fmt.Errorf("%d nodes are shown, want %d", len(fleet.Nodes), len(want))
	}
	for i, got := range fleet.Nodes {
		if err := sameNode(got, want[i].shown); err != nil {
			return err
		}
		if want[i].shown.Generation == "" {
			if r.seen[got.Generation] || strings.ContainsAny(got.Generation, " ") {
				return fmt.Errorf("the generation of a new registration is %q, which there was before", got.Generation)
			}
			r.seen[got.Generation] = true
			want[i].shown.Generation = got.Generation
		}
	}
	return nil
}

// end waits until every lease is over, and removes the nodes: none has anything left then.
func (r *nodesRun) end() error {
	last := r.clock.Now()
	for _, l := range r.mirror.lent {
		if r.mirror.live(l) && l.ends.After(last) {
			last = l.ends
		}
	}
	r.clock.Set(last)
	loads, err := r.client().Loads(r.ctx, "", r.ids())
	if err != nil {
		return err
	}
	for i, id := range r.ids() {
		if load := loads[i]; load.InFlight != 0 || load.Queued != 0 || load.Probing {
			return fmt.Errorf("%s stands at %+v when every lease is over", id, load)
		}
	}
	if err := r.check(); err != nil {
		return err
	}
	for _, id := range r.ids() {
		if _, err := r.client().Remove(r.ctx, id, ""); err != nil {
			return err
		}
		delete(r.mirror.nodes, id)
	}
	return r.fleet()
}

// pick returns one of the leases that are wanted, the latest rather than the first, or nil.
func (r *nodesRun) pick(wanted func(*lent) bool) *lent {
	all := r.mirror.lent
	for range 20 {
		if len(all) == 0 {
			return nil
		}
		back := min(r.random.IntN(len(all)), r.random.IntN(len(all)))
		if l := all[len(all)-1-back]; wanted(l) {
			return l
		}
	}
	return nil
}

func (r *nodesRun) upTo(most time.Duration) time.Duration {
	return time.Duration(1+r.random.Int64N(most.Microseconds())) * time.Microsecond
}
