package redis

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/ai-process/ktms/pool"
)

// staleAfter bounds how long the fleet comes from the cache when Redis cannot tell that it has changed, as when a connection
// hangs. It is a fraction of the time in which a node is expected to be heard of.
const staleAfter = 3 * time.Second

// A reading is not followed by one that only others' heartbeats are a reason for until restsFor times as long has gone by as
// it took, and at most longestRest: of some hundreds of nodes there are that many heartbeats in a second, and most requests
// would wait for one reading after the other.
const (
	restsFor    = 10
	longestRest = 100 * time.Millisecond
)

// view is the fleet as it was read at one time. It never changes.
type view struct {
	nodes []pool.Node
	// known is what the nodes were read from, by id. It belongs to the reading that comes next.
	known map[string]*shown
	// kept are the nodes that Redis has lost.
	kept map[string]pool.Node

	// changes and outages are how many there had been. After one more this view is too old.
	changes, outages uint64
	// told is how often Redis had told of what others have changed, and until when the cache is trusted no more, by this
	// machine's clock; zero = there is no cache. The view may be older than that up to rests.
	told         uint64
	until, rests time.Time
	// read is when Redis said so, and before when a node is forgotten, by the pool's clock in microseconds.
	read, before int64
}

// Fleet implements pool.Nodes.
func (n *Nodes) Fleet(ctx context.Context) (pool.Fleet, error) {
	if err := ctx.Err(); err != nil {
		return pool.Fleet{}, err
	}
	if v := n.view.Load(); v != nil && !n.client.guard.resting() {
		if now := n.client.clock.guess(); n.fits(v, now) {
			return pool.Fleet{Now: instant(now), Nodes: v.nodes}, nil
		}
	}
	v, err := n.refresh(ctx)
	if err != nil {
		return pool.Fleet{}, err
	}
	return pool.Fleet{Now: instant(n.client.clock.guess()), Nodes: v.nodes}, nil
}

// fits reports whether a view is what Redis would say.
func (n *Nodes) fits(v *view, now int64) bool {
	c := n.client
	if v.changes != c.changes.Load() || v.outages != c.away.turn.Load() || now >= v.before || v.until.IsZero() {
		return false
	}
	local := time.Now()
	return v.told == c.told.Load() && local.Before(v.until) || local.Before(v.rests)
}

// reading is one reading of the fleet that several calls wait for.
type reading struct {
	done chan struct{}
	view *view
	err  error
}

// refresh reads the fleet, or waits for a reading that began after the call or has missed nothing.
func (n *Nodes) refresh(ctx context.Context) (*view, error) {
	c := n.client
	for again := false; ; again = true {
		r, began := n.begin()
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.life.Done():
			return nil, fmt.Errorf("%w: fleet: %w", pool.ErrUnavailable, errClosed)
		}
		switch {
		case r.err != nil:
			return nil, r.err
		case began || again || n.fits(r.view, c.clock.guess()):
			return r.view, nil
		}
	}
}

// begin joins the reading that is under way, or begins one.
func (n *Nodes) begin() (r *reading, began bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reading != nil {
		return n.reading, false
	}
	r = &reading{done: make(chan struct{})}
	n.reading = r
	n.client.spawn(func() {
		r.view, r.err = n.readFleet()
		n.mu.Lock()
		n.reading = nil
		if r.err == nil {
			n.view.Store(r.view)
		}
		n.mu.Unlock()
		close(r.done)
	})
	return r, true
}

// readFleet is one call, from the guard to the view.
func (n *Nodes) readFleet() (*view, error) {
	c := n.client
	let, may := c.guard.enter()
	if !may {
		return nil, errResting
	}
	let.began = c.clock.guess()
	began := time.Now()
	trip, cancel := context.WithTimeout(c.life, c.timeout)
	defer cancel()
	former := n.view.Load()
	if former == nil {
		former = &view{}
	}
	answers := make(chan fleetAnswer, 1)
	c.spawn(func() { answers <- n.askFleet(trip, former) })
	var got fleetAnswer
	select {
	case got = <-answers:
	case <-trip.Done():
		got.err = trip.Err()
	}
	if got.err != nil {
		n.stale.Store(true) // it is not known what was waited for
		return nil, c.judge("fleet", let, got.err)
	}
	if err := c.judge("fleet", let, nil); err != nil {
		return nil, err
	}
	v, err := n.look(former, got)
	if err != nil {
		return nil, fmt.Errorf("%w: fleet: %w", pool.ErrUnavailable, err)
	}
	v.rests = time.Now().Add(min(restsFor*time.Since(began), longestRest))
	return v, nil
}

// fleetAnswer is what Redis says of the fleet.
type fleetAnswer struct {
	err error
	// changes are those that there had been before it was asked, and told how often Redis had told of others'.
	changes, told uint64
	// until is when the cache is trusted no more, in milliseconds since 1970 by this machine's clock; 0 = there is none.
	until   int64
	removed []string
	nodes   map[string][]rueidis.RedisMessage
}

// askFleet reads the fleet, of which most comes from the cache as a rule. The ids are taken to be the former ones, so that
// it is one round trip; those of new nodes take another.
func (n *Nodes) askFleet(ctx context.Context, former *view) fleetAnswer {
	c := n.client
	got := fleetAnswer{changes: c.changes.Load(), told: c.told.Load(), until: math.MaxInt64, nodes: map[string][]rueidis.RedisMessage{}}
	client, err := c.connected(ctx)
	if err != nil {
		return fleetAnswer{err: err}
	}
	if n.stale.Swap(false) || c.clock.doubtful() {
		// What Redis has to tell comes before the answer to what is asked after it on the same connection.
		now, err := readReply(c.scripts.now.Exec(ctx, client, []string{c.keys.nodes()}, []string{""}))
		if err != nil {
			return fleetAnswer{err: err}
		}
		c.noteTime(now.now)
	}
	asked := slices.Collect(maps.Keys(former.known))
	results := client.DoMultiCache(ctx, append([]rueidis.CacheableTTL{
		rueidis.CT(client.B().Zrange().Key(c.keys.nodes()).Min("0").Max("-1").Cache().ToStaticTTL(), staleAfter),
		rueidis.CT(client.B().Zrange().Key(c.keys.removed()).Min("0").Max("-1").Cache().ToStaticTTL(), staleAfter),
	}, n.fieldsOf(client, asked)...)...)
	ids, err := got.names(results[0])
	if err != nil {
		return fleetAnswer{err: err}
	}
	if got.removed, err = got.names(results[1]); err != nil {
		return fleetAnswer{err: err}
	}
	if err := got.take(asked, results[2:]); err != nil {
		return fleetAnswer{err: err}
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return got.nodes[id] != nil })
	if len(ids) > 0 {
		if err := got.take(ids, client.DoMultiCache(ctx, n.fieldsOf(client, ids)...)); err != nil {
			return fleetAnswer{err: err}
		}
	}
	if slices.ContainsFunc(asked, got.misses) {
		// The cache may have told that a node is gone before it tells that it was removed. Redis itself knows of both.
		if got.removed, err = client.Do(ctx, client.B().Zrange().Key(c.keys.removed()).Min("0").Max("-1").Build()).AsStrSlice(); err != nil {
			return fleetAnswer{err: err}
		}
	}
	return got
}

// misses reports whether a node is gone without having been removed.
func (a *fleetAnswer) misses(id string) bool {
	fields := a.nodes[id]
	return (len(fields) == 0 || fields[0].IsNil()) && !slices.Contains(a.removed, id)
}

// fieldsOf asks what the fleet shows of each node.
func (n *Nodes) fieldsOf(client rueidis.Client, ids []string) []rueidis.CacheableTTL {
	ask := make([]rueidis.CacheableTTL, 0, len(ids))
	for _, id := range ids {
		read := client.B().Hmget().Key(n.client.keys.fleet(id)).Field(shownFields[:]...).Cache().ToStaticTTL()
		ask = append(ask, rueidis.CT(read, staleAfter))
	}
	return ask
}

// array is a reply, of which the cache may be trusted for some time.
func (a *fleetAnswer) array(result rueidis.RedisResult) ([]rueidis.RedisMessage, error) {
	all, err := result.ToArray()
	if err != nil {
		return nil, err
	}
	a.until = min(a.until, max(result.CachePXAT(), 0))
	return all, nil
}

func (a *fleetAnswer) names(result rueidis.RedisResult) ([]string, error) {
	all, err := a.array(result)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(all))
	for i := range all {
		if names[i], err = all[i].ToString(); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func (a *fleetAnswer) take(ids []string, results []rueidis.RedisResult) error {
	for i, id := range ids {
		fields, err := a.array(results[i])
		if err != nil {
			return err
		}
		a.nodes[id] = fields
	}
	return nil
}

// look makes a view of what Redis says, of which only what has changed since the former one is read.
func (n *Nodes) look(former *view, got fleetAnswer) (*view, error) {
	now := n.client.clock.guess()
	v := &view{known: make(map[string]*shown, len(got.nodes)), changes: got.changes, told: got.told, read: now, before: math.MaxInt64}
	if got.until > 0 && got.until < math.MaxInt64 {
		v.until = time.UnixMilli(got.until)
	}
	for id, fields := range got.nodes {
		was := former.known[id]
		s := &shown{}
		if was != nil {
			*s = *was
		}
		there, err := s.read(fields)
		if err != nil {
			return nil, fmt.Errorf("node %q: %w", id, err)
		}
		if there && s.heartbeat+n.retention.Microseconds() > now {
			v.known[id] = s
			v.before = min(v.before, s.heartbeat+n.retention.Microseconds())
			if was != nil && !was.kept && wentBack(was, s, now) {
				n.client.away.forgot.Store(now)
			}
		}
	}
	n.keep(v, former, got.removed, now)
	v.outages = n.client.away.turn.Load()
	v.nodes = make([]pool.Node, 0, len(v.known))
	for _, s := range v.known {
		node := s.node
		node.HeardAt = instant(n.client.away.heard(s.heartbeat, now))
		v.nodes = append(v.nodes, node)
	}
	slices.SortFunc(v.nodes, func(a, b pool.Node) int { return strings.Compare(a.ID, b.ID) })
	return v, nil
}

// keep leaves nodes in the view that Redis has lost: they are gone, and were neither removed nor silent for long. They stay
// until a while after the outage in which that happened.
func (n *Nodes) keep(v, former *view, removed []string, now int64) {
	away := &n.client.away
	for id, was := range former.known {
		if v.known[id] != nil || slices.Contains(removed, id) || was.heartbeat+n.retention.Microseconds()-forgottenSlack <= now {
			continue
		}
		if !was.kept {
			away.lost(former.read, now)
		}
		until := away.last(now) + outageReach.Microseconds()
		if now >= until {
			continue
		}
		s := *was
		s.kept, s.texts = true, [len(shownFields)]string{} // which are read in full when the node is back
		v.known[id] = &s
		v.before = min(v.before, until)
		if v.kept == nil {
			v.kept = map[string]pool.Node{}
		}
		v.kept[id] = s.node
	}
}

// wentBack reports whether Redis knows less than it did: it was started with what it had saved before, or is a replica by now
// that had not been told of everything. Where the clock was set back, heartbeats are earlier than before, too.
func wentBack(was, is *shown, now int64) bool {
	return is.heartbeat < was.heartbeat && was.heartbeat <= now || restarted(was.node.Generation, is.node.Generation)
}

// restarted reports whether generations are counted from the beginning again: Redis has lost what it knew, and the node has
// registered since. Of all nodes that do so one at least has no higher number than before.
func restarted(former, generation string) bool {
	return generation != former && countOf(generation) <= countOf(former)
}

// countOf is the number at the end of a generation.
func countOf(generation string) int64 {
	n, _ := strconv.ParseInt(generation[strings.LastIndexByte(generation, '/')+1:], 10, 64) // the scripts write it
	return n
}

// forgottenSlack is by how many microseconds Redis may forget a node before this client's idea of the time says so.
const forgottenSlack = 1_000_000

// kept are the nodes that Redis has lost and that are shown even so.
func (n *Nodes) kept() map[string]pool.Node {
	if v := n.view.Load(); v != nil {
		return v.kept
	}
	return nil
}

// lost reports whether Redis has lost a node that registered with this key, or any if it is empty.
func (n *Nodes) lost(id, keyID string) bool {
	node, is := n.kept()[id]
	return is && (keyID == "" || node.KeyID == keyID)
}
