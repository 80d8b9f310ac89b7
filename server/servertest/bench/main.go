// Command bench measures what Keystone adds to a call, and what limits add to that, side by side with the same call made
// directly, in one run.
//
// It builds ktms-server and starts it three times on loopback, each as a process of its own: without limits, with limits
// that are counted in memory, and with the same limits on a Redis. It alternates between them and a scripted vendor, so
// that whatever else the machine does weighs on all alike. It ends by itself and reads CPU time and memory from /proc, so
// it runs on Linux alone. Redis is the redis-server on the PATH.
//
// With -pool it measures instead what the local pool adds: the same vendor called by itself, as twelve nodes whose state is in
// memory, and as twelve nodes on a Redis.
//
//	go run ./server/servertest/bench            # about a minute
//	go run ./server/servertest/bench -pool
//	go run ./server/servertest/bench -calls 20000
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

func main() {
	calls := flag.Int("calls", 4000, "calls of each kind, each way")
	parallel := flag.Int("parallel", 16, "calls at once where throughput and CPU are measured")
	pooled := flag.Bool("pool", false, "measure the local pool instead of limits")
	vendor := flag.Bool("vendor", false, "serve as the scripted vendor; for the program's own use")
	flag.Parse()
	if *vendor {
		serveVendor()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := run(ctx, *calls, *parallel, *pooled); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, calls, parallel int, pooled bool) error {
	dir, err := os.MkdirTemp("", "ktms-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "ktms-server")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "github.com/ai-process/ktms/cmd/ktms-server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w: %s", err, out)
	}
	info, err := os.Stat(binary)
	if err != nil {
		return err
	}
	direct, stopVendor, err := startVendor(ctx)
	if err != nil {
		return fmt.Errorf("the scripted vendor: %w", err)
	}
	defer stopVendor()
	redis, stopRedis, err := startRedis(ctx, dir)
	if err != nil {
		return fmt.Errorf("redis-server: %w", err)
	}
	defer stopRedis()

	gateways := []*gateway{{name: "no limits"}, {name: "in memory", limited: true}, {name: "on Redis", limited: true, redis: redis.addr}}
	if pooled {
		gateways = poolGateways(redis.addr)
	}
	for _, g := range gateways {
		stop, err := g.start(ctx, binary, dir, direct.url)
		if err != nil {
			return fmt.Errorf("ktms-server, %s: %w", g.name, err)
		}
		defer stop()
	}
	plain := gateways[0]
	fmt.Printf("binary                     %6.1f MB (static, stripped)\n", float64(info.Size())/1e6)
	fmt.Printf("start to first answer      %6.0f ms (new SQLite file, seeded)\n", float64(plain.ready.Milliseconds()))
	fmt.Printf("memory after first answer  %6.1f MiB of its own, %.1f MiB resident with the binary's pages\n",
		anonymous(plain.pid), resident(plain.pid))
	if err := prepare(ctx, gateways, direct.url); err != nil {
		return err
	}

	if err := latencies(ctx, calls, direct, gateways); err != nil {
		return err
	}
	if err := loads(ctx, calls, parallel, gateways, redis.pid); err != nil {
		return err
	}
	fmt.Println()
	for _, g := range gateways {
		fmt.Printf("memory after the load, %-10s %6.1f MiB of its own, %.1f MiB resident, peak %.1f MiB\n",
			g.name, anonymous(g.pid), resident(g.pid), peak(g.pid))
	}
	for _, g := range gateways {
		if !g.limited {
			continue
		}
		if err := g.counted(ctx); err != nil {
			return fmt.Errorf("the limits were not at work, %s: %w", g.name, err)
		}
	}
	return nil
}

// prepare sets limits, or lends nodes, where they are wanted.
func prepare(ctx context.Context, gateways []*gateway, vendor string) error {
	for _, g := range gateways {
		if g.limited {
			if err := g.limit(ctx); err != nil {
				return fmt.Errorf("set limits, %s: %w", g.name, err)
			}
		}
		if g.pooled {
			if err := g.lend(ctx, vendor); err != nil {
				return fmt.Errorf("register nodes, %s: %w", g.name, err)
			}
		}
	}
	if gateways[1].pooled {
		fmt.Printf("nodes                      %6d\n\n", poolNodes)
	} else {
		fmt.Printf("limits                     %6d counters: %s\n\n", len(limits), limitNames())
	}
	return nil
}

// kinds are the ways to make a call.
var kinds = []struct {
	name   string
	stream bool
}{{"unary, whole answer", false}, {"stream, first token", true}}

// latencies measures one call at a time.
func latencies(ctx context.Context, calls int, direct target, gateways []*gateway) error {
	fmt.Printf("one call at a time, %d of each          p50 ms    p90 ms    p99 ms\n", calls)
	targets := []target{direct}
	for _, g := range gateways {
		targets = append(targets, g.target)
	}
	for _, kind := range kinds {
		sides, err := alternate(ctx, calls, kind.stream, targets...)
		if err != nil {
			return err
		}
		row := func(what string, value func(quantile float64) float64) {
			fmt.Printf("  %-20s %-14s %9.3f %9.3f %9.3f\n", kind.name, what, value(0.5), value(0.9), value(0.99))
		}
		for _, s := range sides {
			row(s.name, s.at)
		}
		for i, s := range sides[1:] {
			before, what := sides[0], "added"
			if i > 0 {
				before, what = sides[1], "+ "+s.name
			}
			row(what, func(quantile float64) float64 { return s.at(quantile) - before.at(quantile) })
		}
	}
	return nil
}

// turns is how often the load moves on to the next gateway and back.
const turns = 8

// loads measures what many calls at once cost, in turns.
func loads(ctx context.Context, calls, parallel int, gateways []*gateway, redis int) error {
	fmt.Printf("\n%d calls at once, %d of each             calls/s   CPU s per 1,000    added   Redis' own\n", parallel, calls)
	for _, kind := range kinds {
		took, used, usedRedis := make([]time.Duration, len(gateways)), make([]float64, len(gateways)), make([]float64, len(gateways))
		for range turns {
			for i, g := range gateways {
				before, beforeRedis := cpuSeconds(g.pid), cpuSeconds(redis)
				spent, err := load(ctx, g.target, calls/turns, parallel, kind.stream)
				if err != nil {
					return err
				}
				took[i] += spent
				used[i] += cpuSeconds(g.pid) - before
				usedRedis[i] += cpuSeconds(redis) - beforeRedis
			}
		}
		name := map[bool]string{false: "unary", true: "stream of 20 tokens"}[kind.stream]
		thousands := float64(calls/turns*turns) / 1000
		for i, g := range gateways {
			fmt.Printf("  %-20s %-14s %13.0f %16.3f", name, g.name, thousands*1000/took[i].Seconds(), used[i]/thousands)
			if i > 0 {
				fmt.Printf(" %9.3f", (used[i]-used[0])/thousands)
			}
			if g.redis != "" {
				fmt.Printf(" %12.3f", usedRedis[i]/thousands)
			}
			fmt.Println()
		}
	}
	return nil
}
