package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/ai-process/ktms/pool"
)

const (
	// defaultRetention is how long a node is kept that is not heard of. A machine that is off over night is still listed.
	defaultRetention = 24 * time.Hour
	// removalMemory is how long it is remembered that a node was removed, so that those who saw it do not take it for lost:
	// longer than anybody keeps a node that is.
	removalMemory = 4 * outageReach
)

// NodesOptions are the settings of Nodes.
type NodesOptions struct {
	// Retention is how long a node is kept that is not heard of; 0 = 24 hours. All replicas have to have the same.
	Retention time.Duration
}

// Nodes implements pool.Nodes. Its Fleet comes from the client-side cache where Redis offers one: what another replica has
// changed shows as soon as Redis has told so, and at the latest after a few seconds.
//
// While Redis is away heartbeats are lost. Nodes that were heard of shortly before count as heard of at the end of the
// outage, and those that Redis has lost are kept for a moment, until they have registered anew.
type Nodes struct {
	client    *Client
	retention time.Duration

	// view is the fleet as it was read last.
	view atomic.Pointer[view]
	// stale: this client has changed what the fleet shows, and may not have been told of it yet.
	stale atomic.Bool

	mu      sync.Mutex
	reading *reading

	doubts doubts
}

var _ pool.Nodes = (*Nodes)(nil)

// Nodes keeps nodes in this Redis.
func (c *Client) Nodes(options NodesOptions) *Nodes {
	if options.Retention <= 0 {
		options.Retention = defaultRetention
	}
	return &Nodes{client: c, retention: options.Retention}
}

// run asks a script about nodes. What it is asked begins with the clock and the retention.
func (n *Nodes) run(ctx context.Context, operation string, script *rueidis.Lua, write func(r *request)) (reply, error) {
	c := n.client
	return c.run(ctx, operation, script, func(r *request, now int64) {
		c.clock.write(r, now)
		r.numbers(n.retention.Microseconds())
		write(r)
	})
}

// change asks a script that changes what the fleet shows.
func (n *Nodes) change(ctx context.Context, operation string, script *rueidis.Lua, id string, write func(r *request)) (reply, error) {
	defer n.changed() // also after an error: it is not known then
	return n.run(ctx, operation, script, func(r *request) {
		r.registry(id)
		write(r)
	})
}

// changed lets the next Fleet wait until Redis has told what this client has changed.
func (n *Nodes) changed() {
	n.stale.Store(true)
	n.client.changes.Add(1)
}

// Register implements pool.Nodes.
func (n *Nodes) Register(ctx context.Context, spec pool.NodeSpec, report pool.NodeReport) error {
	token := string(spec.Token)
	spec.Token = nil
	specText, reportText, err := textsOf(spec, report)
	if err != nil {
		return err
	}
	_, err = n.change(ctx, "register", n.client.scripts.register, spec.ID, func(r *request) {
		r.key(r.spell.generations())
		r.word(spec.ID)
		r.word(specText)
		r.word(token)
		r.word(spec.KeyID)
		r.word(spec.Endpoint)
		r.word(reportText)
		r.numbers(report.Level)
		r.word(warmOf(report))
		r.numbers(removalMemory.Microseconds())
	})
	return err
}

func textsOf(spec pool.NodeSpec, report pool.NodeReport) (specText, reportText string, err error) {
	s, err := json.Marshal(spec)
	if err != nil {
		return "", "", fmt.Errorf("node %q: write its spec: %w", spec.ID, err)
	}
	r, err := json.Marshal(report)
	if err != nil {
		return "", "", fmt.Errorf("node %q: write its report: %w", spec.ID, err)
	}
	return string(s), string(r), nil
}

// warmOf lists the models in a node's memory. A space follows each, and none is in it.
func warmOf(report pool.NodeReport) string {
	var warm strings.Builder
	for _, m := range report.Models {
		if m.Warm {
			warm.WriteString(pool.Key(m.ID))
			warm.WriteByte(' ')
		}
	}
	return warm.String()
}

// Beat implements pool.Nodes.
func (n *Nodes) Beat(ctx context.Context, id string, report pool.NodeReport) (pool.Node, pool.NodeLoad, error) {
	text, err := json.Marshal(report)
	if err != nil {
		return pool.Node{}, pool.NodeLoad{}, fmt.Errorf("node %q: write its report: %w", id, err)
	}
	got, err := n.change(ctx, "beat", n.client.scripts.beat, id, func(r *request) {
		r.key(r.spell.generations())
		r.word(id)
		r.word(string(text))
		r.numbers(report.Level)
		r.word(warmOf(report))
		for _, field := range shownFields {
			r.word(field)
		}
	})
	switch {
	case err != nil:
		return pool.Node{}, pool.NodeLoad{}, err
	case got.outcome == outcomeRefused:
		return pool.Node{}, pool.NodeLoad{}, unknown(id)
	case len(got.before) != 5:
		return pool.Node{}, pool.NodeLoad{}, fmt.Errorf("%w: beat: %w", pool.ErrUnavailable, errReply)
	}
	var s shown
	if known, err := s.read(got.rest); err != nil || !known {
		return pool.Node{}, pool.NodeLoad{}, fmt.Errorf("%w: beat: node %q: %w", pool.ErrUnavailable, id, errReply)
	}
	load := pool.NodeLoad{
		InFlight: got.before[0], Idle: got.before[1], Queued: got.before[2], Failures: got.before[3], Probing: got.before[4] == 1,
	}
	return s.node, load, nil
}

// Remove implements pool.Nodes.
func (n *Nodes) Remove(ctx context.Context, id, keyID string) (bool, error) {
	// A node that Redis has lost is still to be forgotten.
	lost := n.lost(id, keyID)
	got, err := n.change(ctx, "remove", n.client.scripts.remove, id, func(r *request) {
		r.word(id)
		r.word(keyID)
		r.flag(lost, wordKept)
		r.numbers(removalMemory.Microseconds())
	})
	return err == nil && got.outcome == outcomeDone, err
}

// Drain implements pool.Nodes.
func (n *Nodes) Drain(ctx context.Context, id string, drained bool) error {
	got, err := n.change(ctx, "drain", n.client.scripts.drain, id, func(r *request) { r.flag(drained, "1") })
	if err == nil && got.outcome == outcomeRefused {
		return unknown(id)
	}
	return err
}

// Reseal implements pool.Nodes.
func (n *Nodes) Reseal(ctx context.Context, id string, former, token []byte) (bool, error) {
	got, err := n.change(ctx, "reseal", n.client.scripts.reseal, id, func(r *request) {
		r.word(string(former))
		r.word(string(token))
	})
	return err == nil && got.outcome == outcomeDone, err
}

func unknown(id string) error { return fmt.Errorf("node %q: %w", id, pool.ErrUnknownNode) }

// instant is the time of so many microseconds, as it is told to others.
func instant(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// microsOf reads a number of microseconds.
func microsOf(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }
