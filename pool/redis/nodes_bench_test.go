package redis

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
	"github.com/ai-process/ktms/pool/selection"
)

// crew is a fleet to choose from.
type crew struct {
	pool.Nodes
	contenders []pool.Contender
}

// newCrew registers so many nodes, no two of them alike, with more slots than are ever taken.
func newCrew(b *testing.B, nodes pool.Nodes, size int) *crew {
	b.Helper()
	c := &crew{Nodes: nodes}
	for i := range size {
		id := fmt.Sprintf("node-%02d", i)
		report := pool.NodeReport{Level: selection.FullLevel}
		for m := range 8 {
			report.Models = append(report.Models, pool.NodeModel{
				ID: "organisation/model-" + strconv.Itoa(m), Warm: m < 2, Context: 32_768, Capabilities: []string{"chat", "tools"},
			})
		}
		spec := pool.NodeSpec{ID: id, Engine: "vllm", Endpoint: "https://" + id + ".example", MaxConcurrent: 256}
		if err := nodes.Register(b.Context(), spec, report); err != nil {
			b.Fatal(err)
		}
	}
	fleet, err := nodes.Fleet(b.Context())
	if err != nil || len(fleet.Nodes) != size {
		b.Fatalf("%d nodes, %v", len(fleet.Nodes), err)
	}
	for i, node := range fleet.Nodes {
		c.contenders = append(c.contenders, pool.Contender{
			Candidate: selection.Candidate{
				Node: node.ID, Base: 100, Perf: 1 + float64(i%7)/9, Max: 256, Slots: 256, SecondsPerToken: 0.0001 * float64(1+i%5),
			},
			Generation: node.Generation,
		})
	}
	return c
}

// choosing asks for a slot for one of many conversations, which share their first four beginnings.
func (c *crew) choosing(id string, conversation int) pool.Choosing {
	choosing := pool.Choosing{
		ID: pool.ID(id), TTL: time.Minute, Model: "organisation/model-0", Contenders: c.contenders, Prompt: 4200,
		Policy: selection.DefaultPolicy(),
	}
	for p := range selection.MaxPrefixes {
		key := selection.Key{byte(p)}
		if p >= 4 {
			key[1], key[2] = byte(conversation), 1
		}
		choosing.Prefixes = append(choosing.Prefixes, selection.Prefix{Key: key, Tokens: int64(300 * (p + 1))})
	}
	return choosing
}

// BenchmarkChooseScript measures how long Redis is busy with a choice and with what follows it, as Redis counts it.
func BenchmarkChooseScript(b *testing.B) {
	server := pooltest.StartRedis(b)
	for _, size := range []int{12, 50} {
		b.Run(fmt.Sprint("contenders=", size), func(b *testing.B) {
			client := open(b, Options{Addr: server.Addr, KeyPrefix: pooltest.Prefix(b), Timeout: patience})
			crew := newCrew(b, client.Nodes(NodesOptions{}), size)
			var choose, begun, release usage
			calls := 0
			for b.Loop() {
				const row = 100
				leases := make([]pool.Lease, row)
				each := func(used *usage, call func(n int) error) {
					used.add(b, server.Addr, func() {
						for n := range row {
							if err := call(n); err != nil {
								b.Fatal(err)
							}
						}
					})
				}
				each(&choose, func(n int) error {
					chosen, err := crew.Choose(b.Context(), crew.choosing(strconv.Itoa(calls+n), (calls+n)%40))
					if err == nil {
						leases[n] = *chosen.Lease
					}
					return err
				})
				each(&begun, func(n int) error { return crew.Begun(b.Context(), leases[n]) })
				each(&release, func(n int) error {
					return crew.Release(b.Context(), pool.Release{
						Lease: leases[n], Outcome: pool.Succeeded, Measured: pool.Speed{TTFT: 0.3 + float64(n)/99, TPS: 50},
					})
				})
				calls += row
			}
			choose.report(b, "choose")
			begun.report(b, "begun")
			release.report(b, "release")
			b.ReportMetric(0, "ns/op") // of a row, which says nothing
		})
	}
}

// BenchmarkChoose is choices and releases from many callers over one connection.
func BenchmarkChoose(b *testing.B) {
	const callers = 64
	for _, size := range []int{12, 50} {
		b.Run(fmt.Sprint("contenders=", size), func(b *testing.B) {
			crew := newCrew(b, fresh(b).Nodes(NodesOptions{}), size)
			b.ReportAllocs()
			var next atomic.Int64
			var all sync.WaitGroup
			b.ResetTimer()
			for range callers {
				all.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						chosen, err := crew.Choose(b.Context(), crew.choosing(strconv.FormatInt(n, 10), int(n%40)))
						if err == nil {
							err = crew.Release(b.Context(), pool.Release{Lease: *chosen.Lease, Outcome: pool.Succeeded})
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "picks/s")
		})
	}
}

// BenchmarkFleet is what a request pays for the fleet while nothing changes, and after one node's heartbeat.
func BenchmarkFleet(b *testing.B) {
	for _, size := range []int{12, 50} {
		nodes := newCrew(b, fresh(b).Nodes(NodesOptions{}), size).Nodes
		fleet := func() {
			if got, err := nodes.Fleet(b.Context()); err != nil || len(got.Nodes) != size {
				b.Fatal(len(got.Nodes), err)
			}
		}
		b.Run(fmt.Sprint("nodes=", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				fleet()
			}
		})
		b.Run(fmt.Sprint("nodes=", size, "/after a heartbeat"), func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				active := int64(n)
				if _, _, err := nodes.Beat(b.Context(), "node-00", pool.NodeReport{Active: &active}); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				fleet()
			}
		})
	}
}
