package redis

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/pool/pooltest"
	"github.com/ai-process/ktms/pool/selection"
)

// FuzzNodes makes of each input a series of calls, puts it to memory and to Redis on one clock, and compares every answer,
// and with each step what the fleet shows and where the nodes stand.
func FuzzNodes(f *testing.F) {
	die := rand.NewChaCha8([32]byte{1})
	for n := range 8 {
		seed := make([]byte, 40<<n)
		die.Read(seed)
		f.Add(seed)
	}
	pair := newNodesPair(f)
	f.Fuzz(pair.compare)
}

// TestRandomCallsOfNodes does the same with inputs from a die. Coverage cannot lead the fuzzer into a script.
func TestRandomCallsOfNodes(t *testing.T) {
	pair := newNodesPair(t)
	die := rand.NewChaCha8([32]byte{2})
	for n := range 60 {
		input := make([]byte, 1500)
		die.Read(input)
		t.Run(strconv.Itoa(n), func(t *testing.T) { pair.compare(t, input) })
		if t.Failed() {
			return
		}
	}
}

// nodesPair is a Redis and the clock that it shares with each input's memory.
type nodesPair struct {
	clock           *pooltest.Clock
	client          *Client
	address, prefix string
}

func newNodesPair(t testing.TB) *nodesPair {
	p := &nodesPair{clock: pooltest.NewClock(time.Time{}), address: pooltest.Redis(t), prefix: pooltest.Prefix(t)}
	p.client = open(t, Options{Addr: p.address, KeyPrefix: p.prefix, Timeout: patience, Now: p.clock.Now})
	return p
}

func (p *nodesPair) compare(t *testing.T, input []byte) {
	p.clock.Set(time.Date(2027, 2, 28, 23, 59, 50, 123456000, time.UTC))
	nodes := p.client.Nodes(NodesOptions{})
	nodes.changed() // the keys of the input before are gone
	c := &nodesComparison{
		comparison: comparison{T: t, input: input, clock: p.clock},
		redis:      nodes, memory: memory.NewNodes(memory.NodesOptions{Now: p.clock.Now}),
	}
	for step := 0; step < mostSteps && len(c.input) > 0; step++ {
		c.step()
		c.look()
	}
	if _, err := pooltest.Command(p.address, "EVAL",
		`for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('UNLINK', key) end`, "0", "{"+p.prefix+"*"); err != nil {
		t.Fatal(err)
	}
}

// nodesComparison reads an input and asks both.
type nodesComparison struct {
	comparison
	redis, memory pool.Nodes
	leases        []pool.Lease
	generations   []string
	// recorded is when prompts were noted, by which what is believed ends.
	recorded []time.Time
	// failing: most calls fail, so that circuits open.
	failing bool
}

// The names are few, so that they meet again, and odd.
var (
	fuzzNodes  = []string{"a", "b 2", "c:load:a", "d%20", "é", "f"}
	fuzzModels = []string{"m", "org/model:26b q4", "%"}
)

func (c *nodesComparison) node() string  { return fuzzNodes[int(c.next())%len(fuzzNodes)] }
func (c *nodesComparison) model() string { return fuzzModels[int(c.next())%len(fuzzModels)] }

// fraction is a usual factor, a measurement, or anything at all that a float64 can be.
func (c *nodesComparison) fraction() float64 {
	b := c.next()
	switch {
	case b < 90:
		return float64(b) / 30
	case b < 180:
		return float64(b) / 100 / float64(1+int(c.next()))
	case b < 240:
		return float64(c.amount()) * 0.001
	}
	var bits uint64
	for range 8 {
		bits = bits<<8 | uint64(c.next())
	}
	return math.Float64frombits(bits)
}

// span is a time from nothing to days, often one at which something ends.
func (c *nodesComparison) span() time.Duration {
	b := c.next()
	switch {
	case b < 200:
		return time.Microsecond << (b % 30)
	case b < 240:
		return []time.Duration{
			pool.BreakCooldown, pool.PrefixMemory, pool.ReleaseMemory, pool.TurnMemory, defaultRetention, time.Second, time.Millisecond,
		}[int(b)%7] - time.Duration(b%3)*time.Microsecond
	}
	return time.Microsecond << (30 + b%8)
}

func (c *nodesComparison) report() pool.NodeReport {
	r := pool.NodeReport{Level: int64(c.next()) % 3 * 50}
	mask := c.next()
	for i, id := range fuzzModels {
		if mask&(1<<i) != 0 {
			r.Models = append(r.Models, pool.NodeModel{ID: id, Warm: mask&(8<<i) != 0, Context: int64(mask)})
		}
	}
	if mask&64 != 0 {
		active, celsius := c.amount(), c.fraction()
		if math.IsNaN(celsius) || math.IsInf(celsius, 0) {
			celsius = 0
		}
		r.Active, r.GPUs = &active, []pool.NodeGPU{{Name: "<a&b>", Celsius: &celsius}}
	}
	return r
}

func (c *nodesComparison) spec() pool.NodeSpec {
	id, b := c.node(), c.next()
	s := pool.NodeSpec{ID: id, Engine: "vllm", Endpoint: "https://" + strconv.Itoa(int(b%2)), KeyID: strconv.Itoa(int(b / 2 % 2)), MaxConcurrent: int64(b % 7)}
	if b >= 128 {
		s.Token = []byte{b, 0, 255}
	}
	return s
}

func (c *nodesComparison) prompt() []selection.Prefix {
	b := c.next()
	prefixes := make([]selection.Prefix, b%5)
	for i := range prefixes {
		// The beginnings are shared, the ends are one of two.
		prefixes[i] = selection.Prefix{Key: selection.Key{byte(i)}, Tokens: int64(i+1) * int64(b)}
		if i >= 2 {
			prefixes[i].Key[1] = b & 1
		}
	}
	return prefixes
}

func (c *nodesComparison) generation() string {
	b := int(c.next())
	if len(c.generations) == 0 || b%8 == 0 {
		return []string{"", "x y", "1234567890123456"}[b/8%3]
	}
	// The later ones are still believed to hold something.
	return c.generations[max(len(c.generations)-1-b%8, 0)]
}

func (c *nodesComparison) choosing() pool.Choosing {
	c.ids++
	choosing := pool.Choosing{
		ID: pool.ID("lease-" + strconv.Itoa(c.ids)), TTL: c.span(), Model: c.model(), Prompt: c.amount(), Prefixes: c.prompt(),
		Policy: selection.Policy{Plain: c.next()%4 == 0, Affinity: c.fraction()},
	}
	some, more, alike := c.next(), c.next(), c.next()%2 == 0
	for i, id := range fuzzNodes {
		if (some|more)&(1<<i) == 0 {
			continue
		}
		b := c.next()
		choosing.Contenders = append(choosing.Contenders, pool.Contender{
			Candidate: selection.Candidate{
				Node: id, Base: c.fraction() * 100, Perf: c.fraction(), Rank: int(b % 4 / 2), Max: int64(b/4%8) + 1, Slots: int64(c.next() % 16),
				External: int64(c.next()%4) - 2, SecondsPerToken: c.fraction() / 100,
			},
			Generation: c.generation(), Trial: b >= 128, Paced: b&64 != 0,
		})
		if alike { // by some percent, so that many make the shortlist
			last := &choosing.Contenders[len(choosing.Contenders)-1]
			last.Base, last.Perf, last.Rank, last.Max = 100, 1-float64(b%16)/50, 0, 16
			last.SecondsPerToken = float64(b%4) * 0.0001
			last.Slots, last.External = 16, 0
		}
	}
	return choosing
}

func (c *nodesComparison) lease() (pool.Lease, bool) {
	if len(c.leases) == 0 {
		return pool.Lease{}, false
	}
	b := int(c.next())
	if b%4 > 0 { // one of the last
		return c.leases[max(len(c.leases)-1-b/4%4, 0)], true
	}
	return c.leases[b/4%len(c.leases)], true
}

func (c *nodesComparison) step() {
	ctx := c.Context()
	switch b := c.next(); b % 20 {
	case 0, 1:
		spec, report := c.spec(), c.report()
		c.agree("register", c.redis.Register(ctx, spec, report), c.memory.Register(ctx, spec, report))
	case 2, 3:
		id, report := c.node(), c.report()
		gotNode, gotLoad, got := c.redis.Beat(ctx, id, report)
		wantNode, wantLoad, want := c.memory.Beat(ctx, id, report)
		c.agree("beat", got, want)
		c.equal("beat", textOf(gotNode), textOf(wantNode))
		c.equal("beat", gotLoad, wantLoad)
	case 4:
		if b >= 200 { // not too often
			id, key := c.node(), []string{"", "0", "1"}[c.next()%3]
			got, gotErr := c.redis.Remove(ctx, id, key)
			want, wantErr := c.memory.Remove(ctx, id, key)
			c.agree("remove", gotErr, wantErr)
			c.equal("remove", got, want)
		}
	case 5:
		id, drained := c.node(), c.next()%2 == 0
		c.agree("drain", c.redis.Drain(ctx, id, drained), c.memory.Drain(ctx, id, drained))
	case 6:
		id, former, token := c.node(), []byte{c.next(), 0, 255}, []byte{c.next() | 128, 0, 255}
		if c.next()%2 == 0 {
			former = nil
		}
		got, gotErr := c.redis.Reseal(ctx, id, former, token)
		want, wantErr := c.memory.Reseal(ctx, id, former, token)
		c.agree("reseal", gotErr, wantErr)
		c.equal("reseal", got, want)
	case 7:
		c.clock.Advance(c.span())
	case 8:
		c.edge()
	case 9:
		if lease, found := c.lease(); found {
			c.agree("begun", c.redis.Begun(ctx, lease), c.memory.Begun(ctx, lease))
		}
	case 10, 11:
		var renewals []pool.NodeRenewal
		for range 1 + c.next()%3 {
			if lease, found := c.lease(); found {
				renewals = append(renewals, pool.NodeRenewal{Lease: lease, Restore: c.next()%2 == 0})
			}
		}
		ttl := c.span()
		got, gotErr := c.redis.Renew(ctx, renewals, ttl)
		want, wantErr := c.memory.Renew(ctx, renewals, ttl)
		c.agree("renew", gotErr, wantErr)
		c.equal("renew", got, want)
	case 12, 13, 14:
		if lease, found := c.lease(); found {
			outcome := pool.Outcome(c.next() % 3)
			if b >= 200 {
				c.failing = !c.failing
			}
			if c.failing && c.next()%8 > 0 {
				outcome = pool.Failed
			}
			release := pool.Release{Lease: lease, Outcome: outcome, Measured: pool.Speed{TTFT: c.fraction(), TPS: c.fraction()}}
			if c.next()%3 == 0 {
				release.Idle = c.span()
			}
			c.agree("release", c.redis.Release(ctx, release), c.memory.Release(ctx, release))
		}
	case 15:
		prompt, generations := c.prompt(), []string{c.generation(), c.generation(), c.generation()}
		got, gotErr := c.redis.Holders(ctx, prompt, generations)
		want, wantErr := c.memory.Holders(ctx, prompt, generations)
		c.agree("holders", gotErr, wantErr)
		c.equal("holders", got, want)
	default:
		c.choose(c.choosing())
	}
}

func (c *nodesComparison) choose(choosing pool.Choosing) {
	got, gotErr := c.redis.Choose(c.Context(), choosing)
	want, wantErr := c.memory.Choose(c.Context(), choosing)
	c.agree("choose", gotErr, wantErr)
	if !reflect.DeepEqual(got, want) {
		c.Fatalf("choose %+v\n redis: %+v %+v\nmemory: %+v %+v", choosing, got, got.Lease, want, want.Lease)
	}
	if want.Lease != nil {
		c.leases = append(c.leases, *want.Lease)
		c.recorded = append(c.recorded, c.clock.Now())
	}
}

// edge moves the clock to where a circuit has cooled down or a prompt is forgotten, give or take a microsecond.
func (c *nodesComparison) edge() {
	off, which := time.Duration(c.next()%3)*time.Microsecond-time.Microsecond, int(c.next())
	var to time.Time
	broken := ""
	fleet, err := c.memory.Fleet(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	for _, node := range fleet.Nodes {
		if !node.OpenedAt.IsZero() {
			to, broken = node.OpenedAt.Add(pool.BreakCooldown+off), node.ID
		}
	}
	if len(c.recorded) > 0 && (to.IsZero() || which%4 == 0) {
		to = c.recorded[max(len(c.recorded)-1-which/4%4, 0)].Add(pool.PrefixMemory + off)
	}
	if wait := to.Sub(c.clock.Now()); wait > 0 {
		c.clock.Advance(wait)
	}
	for range which % 4 {
		if broken != "" { // one may try it, and the next when that one is over
			c.ids++
			c.choose(pool.Choosing{
				ID: pool.ID("lease-" + strconv.Itoa(c.ids)), TTL: time.Second, Model: "m",
				Contenders: []pool.Contender{{Candidate: selection.Candidate{Node: broken, Base: 1, Perf: 1, Max: 99, Slots: 99}}},
			})
			c.look()
			if c.next()%2 == 0 {
				c.clock.Advance(time.Second + time.Millisecond)
			}
		}
	}
}

// look compares everything that can be seen.
func (c *nodesComparison) look() {
	got, gotErr := c.redis.Fleet(c.Context())
	want, wantErr := c.memory.Fleet(c.Context())
	c.agree("fleet", gotErr, wantErr)
	if !got.Now.Equal(want.Now) || len(got.Nodes) != len(want.Nodes) {
		c.Fatalf("fleet\n redis: %+v\nmemory: %+v", got, want)
	}
	for i := range want.Nodes {
		c.equal("fleet", textOf(got.Nodes[i]), textOf(want.Nodes[i]))
		if generation := want.Nodes[i].Generation; !slices.Contains(c.generations, generation) {
			c.generations = append(c.generations, generation)
		}
	}
	for _, model := range fuzzModels {
		got, gotErr := c.redis.Loads(c.Context(), model, fuzzNodes)
		want, wantErr := c.memory.Loads(c.Context(), model, fuzzNodes)
		c.agree("loads", gotErr, wantErr)
		c.equal("loads", got, want)
	}
}

// textOf is a node with everything in it. Numbers of JSON read back as the same.
func textOf(n pool.Node) string {
	if len(n.Speeds) == 0 {
		n.Speeds = nil
	}
	token := n.Token
	n.Token = nil
	speeds := n.Speeds
	n.Speeds = nil
	text, err := json.Marshal(n)
	if err != nil {
		return err.Error()
	}
	words := string(text) + string(token)
	for _, model := range fuzzModels {
		speed := speeds[model]
		words += " " + strconv.FormatFloat(speed.TTFT, 'g', -1, 64) + " " + strconv.FormatFloat(speed.TPS, 'g', -1, 64)
	}
	return words
}

func (c *nodesComparison) equal(what string, got, want any) {
	c.Helper()
	if !reflect.DeepEqual(got, want) {
		c.Fatalf("%s at %s\n redis: %+v\nmemory: %+v", what, c.clock.Now(), got, want)
	}
}

// agree compares errors: none, or the one for nodes that are not known.
func (c *nodesComparison) agree(what string, got, want error) {
	c.Helper()
	if errors.Is(got, pool.ErrUnknownNode) != errors.Is(want, pool.ErrUnknownNode) || (got == nil) != (want == nil) {
		c.Fatalf("%s at %s\n redis: %v\nmemory: %v", what, c.clock.Now(), got, want)
	}
}
