package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

// The words of the nodes' scripts.
const (
	wordPaced   = "p"
	wordKept    = "k"
	wordRestore = "r"
)

// nodesAtOnce is how many leases of nodes one script renews, or of how many nodes it tells where they stand. Nobody else is
// served meanwhile, for about 10 µs each.
const nodesAtOnce = 200

// Choose implements pool.Nodes.
func (n *Nodes) Choose(ctx context.Context, choosing pool.Choosing) (pool.Chosen, error) {
	if !n.client.away.settled(n.client.clock.guess()) {
		return taken(choosing.Contenders), nil
	}
	kept := n.kept()
	got, err := n.run(ctx, "choose", n.client.scripts.choose, func(r *request) {
		r.turn(choosing.Model)
		r.prefixes(choosing.Prefixes)
		r.word(string(choosing.ID))
		r.numbers(choosing.TTL.Microseconds(), choosing.Prompt)
		r.flag(choosing.Policy.Plain, "1")
		r.fraction(choosing.Policy.Affinity)
		r.numbers(pool.BreakCooldown.Microseconds(), pool.PrefixMemory.Microseconds(), pool.TurnMemory.Microseconds())
		r.numbers(pool.MaxHolders, pool.MaxTurns, int64(len(choosing.Prefixes)))
		for _, p := range slices.Backward(choosing.Prefixes) {
			r.numbers(p.Tokens)
		}
		for i := range choosing.Contenders {
			r.contender(&choosing.Contenders[i], kept)
		}
	})
	if err != nil {
		if !errors.Is(err, errResting) { // which was not asked
			n.abandon(&choosing)
		}
		return pool.Chosen{}, err
	}
	if !n.client.away.settled(got.now) { // which has come to light meanwhile
		n.abandon(&choosing)
		return taken(choosing.Contenders), nil
	}
	if len(got.before) != 7 || got.before[0] < 0 || got.before[0] > int64(len(choosing.Contenders)) {
		return pool.Chosen{}, fmt.Errorf("%w: choose: %w", pool.ErrUnavailable, errReply)
	}
	chosen := pool.Chosen{Occupied: got.before[1]}
	if which := got.before[0]; which > 0 {
		chosen.Lease = &pool.Lease{
			ID: choosing.ID, Node: choosing.Contenders[which-1].Node, Model: choosing.Model,
			Matched: got.before[2], Queued: got.before[3], Ahead: got.before[4], Turn: got.before[5], Trial: got.before[6] == 1,
		}
	}
	return chosen, nil
}

// taken is the outcome while it is not known who is on the nodes.
func taken(contenders []pool.Contender) pool.Chosen {
	var all pool.Chosen
	for i := range contenders {
		all.Occupied += min(contenders[i].Slots, contenders[i].Max)
	}
	return all
}

// contender is what choose.lua is told of one.
func (r *request) contender(c *pool.Contender, kept map[string]pool.Node) {
	r.node(c.Node, kindLoad, kindInflight, kindLease)
	flags := ""
	if c.Paced {
		r.node(c.Node, kindIdle)
		flags = wordPaced
	}
	if _, is := kept[c.Node]; is {
		flags += wordKept
	}
	r.name(c.Node)
	r.name(c.Generation)
	r.fraction(c.Base * c.Perf)
	r.numbers(int64(c.Rank), c.Max, min(c.Slots, c.Max), max(c.External, 0))
	if c.SecondsPerToken > 0 {
		r.fraction(c.SecondsPerToken)
	} else {
		r.word("0")
	}
	r.word(flags)
}

// Begun implements pool.Nodes.
func (n *Nodes) Begun(ctx context.Context, lease pool.Lease) error {
	_, err := n.run(ctx, "begun", n.client.scripts.begun, func(r *request) {
		r.node(lease.Node, kindLoad, kindInflight, kindLease)
		r.word(string(lease.ID))
	})
	return err
}

// Renew implements pool.Nodes.
func (n *Nodes) Renew(ctx context.Context, leases []pool.NodeRenewal, ttl time.Duration) (gone []pool.ID, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	kept := n.kept()
	for len(leases) > 0 {
		some := leases[:min(len(leases), nodesAtOnce)]
		leases = leases[len(some):]
		got, err := n.run(ctx, "renew_nodes", n.client.scripts.nodeRenew, func(r *request) {
			r.numbers(ttl.Microseconds())
			for _, renewal := range some {
				r.node(renewal.Lease.Node, kindLoad, kindInflight, kindLease)
				r.released(renewal.Lease.ID)
				flags := ""
				if renewal.Restore {
					flags = wordRestore
				}
				if _, is := kept[renewal.Lease.Node]; is {
					flags += wordKept
				}
				r.word(string(renewal.Lease.ID))
				r.word(flags)
			}
		})
		if err != nil {
			return nil, err
		}
		if len(got.before) != len(some) {
			return nil, fmt.Errorf("%w: renew: %w", pool.ErrUnavailable, errReply)
		}
		for i, there := range got.before {
			if there == 0 {
				gone = append(gone, some[i].Lease.ID)
			}
		}
	}
	return gone, nil
}

// Release implements pool.Nodes.
func (n *Nodes) Release(ctx context.Context, release pool.Release) error {
	lease := release.Lease
	got, err := n.run(ctx, "release", n.client.scripts.release, func(r *request) {
		r.released(lease.ID)
		r.node(lease.Node, kindLoad, kindInflight, kindLease, kindIdle, kindSpeed, kindFleet)
		r.word(string(lease.ID))
		r.numbers(pool.ReleaseMemory.Microseconds(), int64(release.Outcome), lease.Turn)
		r.flag(lease.Trial, "1")
		if release.Idle > 0 {
			r.numbers(release.Idle.Microseconds())
		} else {
			r.word("")
		}
		r.numbers(pool.BreakAfter)
		r.word(lease.Model)
		r.measured(release.Measured.TTFT)
		r.measured(release.Measured.TPS)
		r.fraction(pool.SpeedGain)
	})
	if err != nil || len(got.before) > 0 && got.before[0] == 1 {
		n.changed()
	}
	return err
}

// measured is a value that may teach something.
func (r *request) measured(x float64) {
	if x > 0 && !math.IsInf(x, 1) {
		r.fraction(x)
	} else {
		r.word("")
	}
}

// Loads implements pool.Nodes.
func (n *Nodes) Loads(ctx context.Context, model string, ids []string) ([]pool.NodeLoad, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	const numbers = 6 // of each node
	loads := make([]pool.NodeLoad, 0, len(ids))
	for len(ids) > 0 {
		some := ids[:min(len(ids), nodesAtOnce)]
		ids = ids[len(some):]
		got, err := n.run(ctx, "loads", n.client.scripts.loads, func(r *request) {
			r.turn(model)
			for _, id := range some {
				r.node(id, kindLoad, kindInflight, kindLease, kindIdle)
				r.name(id)
			}
		})
		if err != nil {
			return nil, err
		}
		if len(got.before) != numbers*len(some) {
			return nil, fmt.Errorf("%w: loads: %w", pool.ErrUnavailable, errReply)
		}
		for i := range some {
			of := got.before[numbers*i:]
			loads = append(loads, pool.NodeLoad{
				InFlight: of[0], Idle: of[1], Queued: of[2], Current: of[3], Failures: of[4], Probing: of[5] == 1,
			})
		}
	}
	return loads, nil
}

// Holders implements pool.Nodes.
func (n *Nodes) Holders(ctx context.Context, prefixes []selection.Prefix, generations []string) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	holds := make([]bool, len(generations))
	if len(prefixes) == 0 || len(generations) == 0 {
		return holds, nil
	}
	got, err := n.run(ctx, "holders", n.client.scripts.holders, func(r *request) {
		r.prefixes(prefixes)
		for _, generation := range generations {
			r.name(generation)
		}
	})
	if err != nil {
		return nil, err
	}
	if len(got.before) != len(holds) {
		return nil, fmt.Errorf("%w: holders: %w", pool.ErrUnavailable, errReply)
	}
	for i, does := range got.before {
		holds[i] = does == 1
	}
	return holds, nil
}
