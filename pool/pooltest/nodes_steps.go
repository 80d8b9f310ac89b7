package pooltest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

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
