package pooltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

var choiceTests = []nodeTest{
	{"go to the best rank that is free", testRanks},
	{"go to who has least to read", testQueue},
	{"are those of the arithmetic", testChoices},
}

func testRanks(h *nodesHarness) {
	h.join("a", 1)
	h.join("b", 1)
	h.join("c", 1)
	a, b, c := contender("a", 1), contender("b", 1), contender("c", 1)
	a.Rank, b.Rank, c.Rank = 2, 0, 1
	for _, want := range []string{"b", "c", "a"} {
		if got := h.take(h.choosing(a, b, c)); got.Node != want {
			h.Errorf("chosen %s, want %s", got.Node, want)
		}
	}
	h.wantFull(h.choosing(a, b, c))
}

func testQueue(h *nodesHarness) {
	h.join("a", 100)
	h.join("b", 100)
	a, b := contender("a", 100), contender("b", 100)
	a.SecondsPerToken, b.SecondsPerToken = 0.001, 0.001
	long := h.choosing(a)
	long.Prompt = 100_000
	first := h.take(long)
	for range 5 {
		got := h.take(h.choosing(a, b))
		if got.Node != "b" {
			h.Errorf("chosen %s, which has a long prompt to read", got.Node)
		}
		h.release(got, pool.Succeeded)
	}
	h.begun(first)
	nodes := map[string]int{}
	for range 10 {
		got := h.take(h.choosing(a, b))
		nodes[got.Node]++
		h.release(got, pool.Succeeded)
	}
	if want := map[string]int{"a": 5, "b": 5}; !reflect.DeepEqual(nodes, want) {
		h.Errorf("chosen %v once it was read, want %v", nodes, want)
	}
}

func testChoices(h *nodesHarness) {
	for seed := range int64(sequences) {
		if err := nodesProperty(h.Context(), seed, h.clients, h.clock, h.patience); err != nil {
			h.Fatalf("%v", err)
		}
	}
}

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
	for step := range steps {
		name, act := "register", r.register
		if step >= len(r.ids()) {
			name, act = r.choose()
		}
		err := act()
		if err == nil {
			err = r.check()
		}
		if err != nil {
			return fmt.Errorf("seed %d, step %d (%s), %s: %w", seed, step, name, clock.Now(), err)
		}
	}
	if err := r.end(); err != nil {
		return fmt.Errorf("seed %d, at the end, %s: %w", seed, clock.Now(), err)
	}
	return nil
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

func (r *nodesRun) choice() error {
	r.leases++
	c := pool.Choosing{
		ID:  pool.ID(fmt.Sprintf("lease-%d-%d", r.seed, r.leases)),
		TTL: []time.Duration{time.Second, 20 * time.Second, time.Minute, 5 * time.Minute}[r.random.IntN(4)], Model: r.model(),
		Prompt: []int64{0, r.random.Int64N(100), r.random.Int64N(10_000), r.random.Int64N(1 << 40)}[r.random.IntN(4)],
		Policy: selection.Policy{Plain: r.random.IntN(8) == 0, Affinity: []float64{selection.DefaultAffinity, 0, 0.3, 20}[r.random.IntN(4)]},
	}
	c.Prefixes = r.prompt()
	for _, id := range r.ids() {
		if r.random.IntN(6) > 0 {
			c.Contenders = append(c.Contenders, r.contender(id))
		}
	}
	want := r.mirror.choose(c)
	got, err := r.client().Choose(r.ctx, c)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("chosen %s, want %s", chosenText(got), chosenText(want))
	}
	return nil
}

func chosenText(c pool.Chosen) string {
	if c.Lease == nil {
		return fmt.Sprintf("none while %d slots are taken", c.Occupied)
	}
	return fmt.Sprintf("%+v while %d slots are taken", *c.Lease, c.Occupied)
}

// contender is a node with weights of any kind, seldom under a generation of before.
func (r *nodesRun) contender(id string) pool.Contender {
	slots := 1 + int64((uint64(r.seed)+uint64(id[len(id)-1]))%4)
	c := pool.Contender{
		Candidate: selection.Candidate{
			Node: id, Base: float64(1 + r.random.IntN(500)), Perf: 0.1 + 3.9*r.random.Float64(),
			Rank: max(r.random.IntN(8)-4, 0), Max: slots, Slots: slots,
		},
		Trial: r.random.IntN(2) == 0, Paced: r.random.IntN(2) == 0,
	}
	if r.random.IntN(2) == 0 {
		c.Base, c.Perf = 100, 1
	}
	if r.random.IntN(4) == 0 {
		c.Slots = r.random.Int64N(slots + 1)
	}
	if r.random.IntN(4) == 0 {
		c.External = r.random.Int64N(3) - 1
	}
	if r.random.IntN(2) == 0 {
		c.SecondsPerToken = r.random.ExpFloat64() / 1000
	}
	if n := r.mirror.node(id); n != nil {
		c.Generation = n.shown.Generation
	}
	if r.random.IntN(10) == 0 {
		c.Generation = id + "/former"
	}
	return c
}

// prompt is one of a few conversations, at any of its turns, or none.
func (r *nodesRun) prompt() []selection.Prefix {
	depths := []int64{100, 250, 700, 1000, 2000, 1 << 30}[:r.random.IntN(7)]
	return promptOf(fmt.Sprintf("%d/%d", r.seed, r.random.IntN(3)), depths...)
}

func (r *nodesRun) release() error {
	l := r.pick(func(l *lent) bool { return !l.crashed })
	if l == nil {
		return nil
	}
	release := pool.Release{Lease: l.Lease, Outcome: []pool.Outcome{pool.Unjudged, pool.Succeeded, pool.Failed}[r.random.IntN(3)]}
	if r.seed%2 == 0 && !l.Trial && r.random.IntN(8) > 0 {
		release.Outcome = pool.Failed // so that circuits open in half of the sequences
	}
	if r.random.IntN(2) == 0 {
		release.Idle = r.upTo(20 * time.Second)
	}
	if r.random.IntN(2) == 0 {
		release.Measured = pool.Speed{TTFT: r.random.ExpFloat64(), TPS: float64(r.random.IntN(3)-1) * 100 * r.random.Float64()}
	}
	r.mirror.release(l, release)
	return r.client().Release(r.ctx, release)
}

func (r *nodesRun) begun() error {
	l := r.pick(func(l *lent) bool { return !l.crashed })
	if l == nil {
		return nil
	}
	if r.mirror.live(l) {
		l.queued = 0
	}
	return r.client().Begun(r.ctx, l.Lease)
}

func (r *nodesRun) renew() error {
	ttl := time.Duration(1+r.random.IntN(60)) * time.Second
	var renewals []pool.NodeRenewal
	var want []pool.ID
	for range 1 + r.random.IntN(4) {
		l := r.pick(func(l *lent) bool { return !l.crashed })
		if l == nil || slices.ContainsFunc(renewals, func(other pool.NodeRenewal) bool { return other.Lease.ID == l.ID }) {
			continue
		}
		renewal := pool.NodeRenewal{Lease: l.Lease, Restore: r.random.IntN(4) == 0}
		if !r.mirror.renew(l, renewal.Restore, ttl) {
			want = append(want, l.ID)
		}
		renewals = append(renewals, renewal)
	}
	got, err := r.client().Renew(r.ctx, renewals, ttl)
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("%q are gone of %+v, want %q", got, renewals, want)
	}
	return err
}

// crash loses a lease: nobody says anything of it any more.
func (r *nodesRun) crash() error {
	if l := r.pick(r.mirror.live); l != nil {
		l.crashed = true
	}
	return nil
}

func (r *nodesRun) register() error {
	id := r.id()
	if missing := slices.IndexFunc(r.ids(), func(id string) bool { return r.mirror.node(id) == nil }); missing >= 0 {
		id = r.ids()[missing]
	}
	s := spec(id, 1+r.random.Int64N(4))
	s.Token = []byte(strconv.Itoa(r.random.IntN(2)))
	if r.random.IntN(4) == 0 {
		s.Endpoint = "https://elsewhere.example"
	}
	report := r.report()
	r.mirror.register(s, report)
	n := r.mirror.nodes[id]
	n.shown.Generation = ""
	if err := r.client().Register(r.ctx, s, report); err != nil {
		return err
	}
	return r.fleet()
}

func (r *nodesRun) report() pool.NodeReport {
	report := pool.NodeReport{Level: []int64{100, 100, 50}[r.random.IntN(3)]}
	for i := range r.random.IntN(3) {
		report.Models = append(report.Models, pool.NodeModel{ID: fmt.Sprintf("model-%d/%d", r.seed, i), Warm: r.random.IntN(4) > 0})
	}
	return report
}

func (r *nodesRun) beat() error {
	id, report := r.id(), r.report()
	n := r.mirror.node(id)
	got, load, err := r.client().Beat(r.ctx, id, report)
	if n == nil {
		if !errors.Is(err, pool.ErrUnknownNode) {
			return fmt.Errorf("a heartbeat of a node that is not registered: %w", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if unloads(n.shown.NodeReport, report) {
		if r.seen[got.Generation] {
			return fmt.Errorf("the generation is %q still, or again, when a model was unloaded", got.Generation)
		}
		n.shown.Generation = got.Generation
		r.seen[got.Generation] = true
	}
	r.mirror.beat(n, report)
	want := r.mirror.load(id, "")
	if load != want {
		return fmt.Errorf("the heartbeat says %+v, want %+v", load, want)
	}
	if err := sameNode(got, n.shown); err != nil {
		return err
	}
	return r.fleet()
}

func (r *nodesRun) remove() error {
	id := r.id()
	n := r.mirror.node(id)
	key := []string{"", "key-of-" + id, "another"}[r.random.IntN(3)]
	want := n != nil && key != "another"
	if want {
		delete(r.mirror.nodes, id)
	}
	if was, err := r.client().Remove(r.ctx, id, key); err != nil || was != want {
		return fmt.Errorf("removed by %q: %t, want %t: %w", key, was, want, err)
	}
	return r.fleet()
}

func (r *nodesRun) drain() error {
	id, drained := r.id(), r.random.IntN(2) == 0
	err := r.client().Drain(r.ctx, id, drained)
	n := r.mirror.node(id)
	if n == nil {
		if !errors.Is(err, pool.ErrUnknownNode) {
			return fmt.Errorf("a drain of a node that is not registered: %w", err)
		}
		return nil
	}
	n.shown.Drained = drained
	return errors.Join(err, r.fleet())
}

func (r *nodesRun) reseal() error {
	id, former, token := r.id(), []byte(strconv.Itoa(r.random.IntN(2))), []byte(strconv.Itoa(r.random.IntN(2)))
	n := r.mirror.node(id)
	want := n != nil && string(n.shown.Token) == string(former)
	if want {
		n.shown.Token = token
	}
	if did, err := r.client().Reseal(r.ctx, id, former, token); err != nil || did != want {
		return fmt.Errorf("resealed %q: %t, want %t: %w", former, did, want, err)
	}
	return r.fleet()
}

func (r *nodesRun) holders() error {
	var generations []string
	for _, id := range r.ids() {
		generations = append(generations, r.contender(id).Generation)
	}
	prompt := r.prompt()
	want := make([]bool, len(generations))
	for _, prefix := range prompt {
		deeper := make([]bool, len(generations))
		for i, generation := range generations {
			deeper[i] = r.mirror.holds(prefix.Key, generation)
		}
		if slices.Contains(deeper, true) {
			want = deeper
		}
	}
	got, err := r.client().Holders(r.ctx, prompt, generations)
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("%q hold the prompt: %v, want %v", generations, got, want)
	}
	return err
}

// advance moves the clock by something between a microsecond and days, or right to an end or beside it.
func (r *nodesRun) advance() error {
	now, to := r.clock.Now(), time.Time{}
	switch pick := r.random.IntN(100); {
	case pick < 40:
		to = now.Add(r.upTo(time.Second))
	case pick < 60:
		to = now.Add(r.upTo(10 * time.Second))
	case pick < 66:
		to = now.Add(r.upTo(2 * time.Minute))
	case pick < 76:
		if l := r.pick(r.mirror.live); l != nil {
			to = l.ends
		}
	case pick < 82:
		if n := r.mirror.node(r.id()); n != nil && len(n.idle) > 0 {
			to = n.idle[r.random.IntN(len(n.idle))]
		}
	case pick < 93:
		if n := r.mirror.node(r.id()); n != nil && !n.shown.OpenedAt.IsZero() {
			to = n.shown.OpenedAt.Add(pool.BreakCooldown)
		}
	case pick < 95:
		for _, until := range r.mirror.held {
			if to.IsZero() || until.After(now) && until.Before(to) {
				to = until
			}
		}
	case pick < 97:
		to = r.mirror.asked[r.model()].Add(pool.TurnMemory)
	case pick < 98:
		if l := r.pick(r.mirror.remembered); l != nil {
			to = l.releasedAt.Add(pool.ReleaseMemory)
		}
	case pick < 99:
		if n := r.mirror.node(r.id()); n != nil {
			to = n.shown.HeartbeatAt.Add(nodesKept)
		}
	default:
		to = now.Add(r.upTo(2 * time.Hour))
	}
	if pick := to.Add(time.Duration(r.random.IntN(3)-1) * time.Microsecond); pick.After(now) {
		r.clock.Set(pick)
	}
	return nil
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
