package redis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
	"github.com/ai-process/ktms/pool/selection"
)

// nodeCalls makes every call there is, so that each script goes through most of what it can do. The nodes are two, and
// nothing of a call before is needed.
type nodeCalls struct {
	*testing.T
	pool.Nodes
	ids int
}

// choosing asks for a slot of either node, by long prompts.
func (c *nodeCalls) choosing(ttl time.Duration) pool.Choosing {
	c.ids++
	choosing := pool.Choosing{
		ID: pool.ID("lease-" + strconv.Itoa(c.ids)), TTL: ttl, Model: "m", Prompt: 5000, Policy: selection.DefaultPolicy(),
	}
	for _, id := range []string{"a", "b"} {
		choosing.Contenders = append(choosing.Contenders, pool.Contender{
			Candidate:  selection.Candidate{Node: id, Base: 100, Perf: 1, Max: 99, Slots: 99, SecondsPerToken: 0.001},
			Generation: id, Paced: id == "a",
		})
	}
	for p := range selection.MaxPrefixes {
		choosing.Prefixes = append(choosing.Prefixes, selection.Prefix{Key: selection.Key{byte(p)}, Tokens: int64(p) * 300})
	}
	return choosing
}

func (c *nodeCalls) lease(ttl time.Duration) pool.Lease {
	c.Helper()
	chosen, err := c.Choose(c.Context(), c.choosing(ttl))
	if err != nil || chosen.Lease == nil {
		c.Fatalf("%+v, %v", chosen, err)
	}
	return *chosen.Lease
}

// nodeOperations are by name, each of them one round trip.
var nodeOperations = []struct {
	name string
	call func(c *nodeCalls, lease pool.Lease) error
}{
	{"register", func(c *nodeCalls, _ pool.Lease) error {
		c.ids++ // so that the endpoint changes
		return c.Register(c.Context(), pool.NodeSpec{ID: "a", Endpoint: strconv.Itoa(c.ids), MaxConcurrent: 99}, healthy())
	}},
	{"beat", func(c *nodeCalls, _ pool.Lease) error {
		c.ids++
		_, _, err := c.Beat(c.Context(), "b", pool.NodeReport{Level: int64(c.ids)})
		return err
	}},
	{"drain", func(c *nodeCalls, _ pool.Lease) error { return c.Drain(c.Context(), "a", true) }},
	{"reseal", func(c *nodeCalls, _ pool.Lease) error {
		_, err := c.Reseal(c.Context(), "a", nil, nil)
		return err
	}},
	{"choose", func(c *nodeCalls, _ pool.Lease) error {
		_, err := c.Choose(c.Context(), c.choosing(time.Minute))
		return err
	}},
	{"begun", func(c *nodeCalls, lease pool.Lease) error { return c.Begun(c.Context(), lease) }},
	{"renew", func(c *nodeCalls, lease pool.Lease) error {
		lost := pool.Lease{ID: lease.ID + "-lost", Node: "b"}
		gone, err := c.Renew(c.Context(), []pool.NodeRenewal{{Lease: lease}, {Lease: lost, Restore: true}}, time.Minute)
		if err == nil && len(gone) > 0 {
			err = fmt.Errorf("%v are gone", gone)
		}
		return err
	}},
	{"release", func(c *nodeCalls, lease pool.Lease) error {
		return c.Release(c.Context(), pool.Release{Lease: lease, Outcome: pool.Failed, Idle: time.Minute, Measured: pool.Speed{TTFT: 1, TPS: 2}})
	}},
	{"loads", func(c *nodeCalls, _ pool.Lease) error {
		_, err := c.Loads(c.Context(), "m", []string{"a", "b", "nobody"})
		return err
	}},
	{"holders", func(c *nodeCalls, _ pool.Lease) error {
		_, err := c.Holders(c.Context(), c.choosing(0).Prefixes, []string{"a", "b"})
		return err
	}},
}

// join registers both nodes.
func (c *nodeCalls) join() {
	c.Helper()
	for _, id := range []string{"a", "b"} {
		if err := c.Register(c.Context(), pool.NodeSpec{ID: id, MaxConcurrent: 99}, healthy()); err != nil {
			c.Fatal(err)
		}
	}
}

func TestEachOperationOnNodesIsOneRoundTrip(t *testing.T) {
	server := pooltest.StartRedis(t)
	c := &nodeCalls{T: t, Nodes: open(t, Options{Addr: server.Addr, Timeout: patience}).Nodes(NodesOptions{})}
	c.join()
	for _, operation := range nodeOperations { // which makes the scripts known
		if err := operation.call(c, c.lease(time.Minute)); err != nil {
			t.Fatal(operation.name, err)
		}
	}
	monitor := newMonitor(t, server.Addr)
	for _, operation := range nodeOperations {
		lease := c.lease(time.Minute)
		monitor.commands()
		if err := operation.call(c, lease); err != nil {
			t.Fatal(operation.name, err)
		}
		if got := monitor.commands(); len(got) != 1 {
			t.Errorf("%s takes %d round trips, want 1: %q", operation.name, len(got), got)
		}
	}
}

// spoken are the words of a command that a monitor has told of.
func spoken(t *testing.T, line string) []string {
	t.Helper()
	_, rest, _ := strings.Cut(line, "] ")
	var all []string
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all, rest = append(all, word), rest[len(quoted):]
	}
	return all
}

// keysOf are those of a command that a script makes.
func keysOf(command []string) []string {
	switch strings.ToUpper(command[0]) {
	case "TIME":
		return nil
	case "MGET", "DEL":
		return command[1:]
	}
	return command[1:2]
}

// TestScriptsOfNodesDeclareTheirKeys compares what scripts touch with what they were given.
func TestScriptsOfNodesDeclareTheirKeys(t *testing.T) {
	server := pooltest.StartRedis(t)
	c := &nodeCalls{T: t, Nodes: open(t, Options{Addr: server.Addr, Timeout: patience}).Nodes(NodesOptions{})}
	monitor := newMonitor(t, server.Addr)
	for range 2 { // the second time there is something to find
		c.join()
		for _, operation := range nodeOperations {
			lease := c.lease(time.Minute)
			c.lease(time.Microsecond) // which is healed by what comes next
			if err := operation.call(c, lease); err != nil {
				t.Fatal(operation.name, err)
			}
		}
	}
	for { // until both circuits are open
		chosen, err := c.Choose(t.Context(), c.choosing(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if chosen.Lease == nil {
			break
		}
		if err := c.Release(t.Context(), pool.Release{Lease: *chosen.Lease, Outcome: pool.Failed}); err != nil {
			t.Fatal(err)
		}
	}
	if was, err := c.Remove(t.Context(), "a", ""); err != nil || !was {
		t.Fatal(was, err)
	}
	var declared []string
	scripts, touched := 0, 0
	for _, line := range monitor.all() {
		command := spoken(t, line)
		switch {
		case strings.HasPrefix(strings.ToUpper(command[0]), "EVAL"):
			count, err := strconv.Atoi(command[2])
			if err != nil {
				t.Fatal(err)
			}
			declared = command[3 : 3+count]
			scripts++
		case strings.Contains(line, " lua]"):
			for _, key := range keysOf(command) {
				touched++
				if !slices.Contains(declared, key) {
					t.Errorf("%q touches %s, which is none of %q", command, key, declared)
				}
			}
		}
	}
	if scripts < 40 || touched < 500 {
		t.Errorf("only %d scripts touch %d keys", scripts, touched)
	}
}

func TestEveryKeyOfNodesHasALife(t *testing.T) {
	server := pooltest.StartRedis(t)
	c := &nodeCalls{T: t, Nodes: open(t, Options{Addr: server.Addr, Timeout: patience}).Nodes(NodesOptions{})}
	c.join()
	for _, operation := range nodeOperations {
		if err := operation.call(c, c.lease(time.Minute)); err != nil {
			t.Fatal(operation.name, err)
		}
		c.lease(time.Minute)
	}
	if err := c.Register(t.Context(), pool.NodeSpec{ID: "c"}, healthy()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Remove(t.Context(), "c", ""); err != nil {
		t.Fatal(err)
	}
	found := lives(t, server.Addr)
	kinds := map[string]bool{}
	for key, life := range found {
		most := defaultRetention
		parts := strings.Split(key, ":")
		kind := strings.Join(parts[1:min(len(parts), 3)], ":")
		kinds[kind] = true
		switch kind {
		case "node:prefix":
			most = pool.PrefixMemory
		case "node:turn":
			most = pool.TurnMemory
		case "node:released":
			most = pool.ReleaseMemory
		}
		if !strings.HasPrefix(key, "{ktms}:") || life < 0 || life > most.Milliseconds()+1 {
			t.Errorf("%s lives for %d ms, want some life of up to %v, where all keys are", key, life, most)
		}
	}
	if want := 12; len(kinds) != want {
		t.Errorf("%d kinds of keys, want %d: %v", len(kinds), want, kinds)
	}
}

// TestNodesInACluster makes every call where a script that touched keys of two servers would be refused, and leads two
// clients through what the suite does at random.
func TestNodesInACluster(t *testing.T) {
	addr := strings.Join(pooltest.StartCluster(t), ",")
	clock := pooltest.NewClock(time.Date(2027, 3, 4, 5, 6, 7, 8000, time.UTC))
	clients := twoClients(t, Options{Addr: addr, Now: clock.Now})
	for seed := range int64(8) {
		if err := pooltest.NodesProperty(t.Context(), seed, clients, clock); err != nil {
			t.Fatal(err)
		}
	}
	c := &nodeCalls{T: t, Nodes: clients[0]}
	c.join()
	for _, operation := range nodeOperations {
		if err := operation.call(c, c.lease(time.Minute)); err != nil {
			t.Fatal(operation.name, err)
		}
	}
}

// TestNodesWhileScriptsAreFlushed makes Redis forget the scripts over and over, which no call may notice, and takes more
// slots than there are.
func TestNodesWhileScriptsAreFlushed(t *testing.T) {
	const workers, calls, limit = 8, 60, 3
	server := pooltest.StartRedis(t)
	nodes := open(t, Options{Addr: server.Addr, Timeout: patience}).Nodes(NodesOptions{})
	if err := nodes.Register(t.Context(), pool.NodeSpec{ID: "n", MaxConcurrent: limit}, healthy()); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var flushing, calling sync.WaitGroup
	flushing.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := pooltest.Command(server.Addr, "SCRIPT", "FLUSH"); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for worker := range workers {
		calling.Go(func() {
			for n := range calls {
				choosing := oneSlot("n")
				choosing.ID = pool.ID(fmt.Sprint(worker, "-", n))
				choosing.Contenders[0].Max = limit
				chosen, err := nodes.Choose(t.Context(), choosing)
				if err != nil || chosen.Occupied > limit || chosen.Lease != nil && chosen.Occupied == limit {
					t.Errorf("%+v, %v; want one of %d slots", chosen, err, limit)
					return
				}
				if chosen.Lease != nil {
					if err := nodes.Release(t.Context(), pool.Release{Lease: *chosen.Lease, Outcome: pool.Succeeded}); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	calling.Wait()
	close(done)
	flushing.Wait()
	loads, err := nodes.Loads(t.Context(), "m", []string{"n"})
	if err != nil || loads[0].InFlight != 0 || loads[0].Queued != 0 {
		t.Errorf("%+v, %v; want that every slot is back", loads, err)
	}
}
