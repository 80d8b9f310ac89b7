// Package doctor looks for everything that keeps a node out of the pool or makes it serve badly, and says it in plain
// words. It changes nothing, here or at the gateway.
package doctor

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/nodeagent/engine"
	"github.com/ai-process/ktms/nodeagent/registry"
	"github.com/ai-process/ktms/nodeagent/schedule"
)

const (
	// callTimeout bounds a call to the gateway.
	callTimeout = 10 * time.Second
	// dialTimeout bounds a try to connect.
	dialTimeout = 5 * time.Second
)

// Machine is what the doctor touches of the machine and the network.
type Machine struct {
	// OS is as runtime.GOOS names it.
	OS string
	// Run runs a tool and returns what it printed.
	Run func(ctx context.Context, name string, args ...string) ([]byte, error)
	// Dial connects.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// GPUs reads the GPUs.
	GPUs func(context.Context) []*ktmsv1.NodeGPU
	// Now is the time in the machine's zone.
	Now time.Time
}

// Options are the agent's own, so that the doctor sees what the agent would do.
type Options struct {
	NodeID    string
	Kind      string
	EngineURL string
	Engine    engine.Engine
	Selection engine.Selection
	// Model is a model that must be there and loaded; empty asks for none.
	Model string
	// Endpoint is what the gateway dials, and Reachable asks there for the models; both unset with a tunnel.
	Endpoint  string
	Reachable engine.Engine
	// Cloudflared is the program of the tunnel; empty without one.
	Cloudflared string
	// ScheduleFile is empty without a schedule.
	ScheduleFile string
	Target       registry.Target
	Registry     registry.Client
	Machine      Machine
}

// report collects what is found.
type report struct {
	out      io.Writer
	problems int
}

func (r *report) ok(format string, args ...any)   { r.line("ok", format, args...) }
func (r *report) note(format string, args ...any) { r.line("note", format, args...) }

func (r *report) problem(format string, args ...any) {
	r.problems++
	r.line("PROBLEM", format, args...)
}

func (r *report) line(kind, format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n         ")
	fmt.Fprintf(r.out, "%-8s %s\n", kind, text)
}

// Examine writes what it finds to out, and returns the number of problems.
func Examine(ctx context.Context, o Options, out io.Writer) (problems int) {
	r := &report{out: out}
	level := checkSchedule(o, r)
	models, answers := checkEngine(ctx, o, r, level)
	checkGPUs(ctx, o, r)
	vetted := checkGateway(ctx, o, r, models)
	checkEndpoint(ctx, o, r, vetted, answers)
	checkTunnel(ctx, o, r)
	if r.problems == 0 {
		r.ok("no problem found")
	}
	return r.problems
}

// count writes a number of things.
func count[N int | int32](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// checkSchedule returns the level now.
func checkSchedule(o Options, r *report) int {
	if o.ScheduleFile == "" {
		return schedule.Full
	}
	s, err := schedule.Read(o.ScheduleFile)
	if err != nil {
		r.problem("the schedule is not valid, so an agent that starts now runs at 100%%:\n%v", err)
		return schedule.Full
	}
	r.ok("schedule: %s", s.Describe(o.Machine.Now))
	return s.Level(o.Machine.Now)
}

// suspectCelsius is the temperature at which the gateway uses a node only when there is no other.
const suspectCelsius = 88

func checkGPUs(ctx context.Context, o Options, r *report) {
	gpus := o.Machine.GPUs(ctx)
	if len(gpus) == 0 {
		r.note("no GPU is reported by the tools of its maker (nvidia-smi, amd-smi, rocm-smi, ioreg)")
	}
	for _, g := range gpus {
		r.ok("GPU %s", describeGPU(g))
		if t := g.TemperatureCelsius; t != nil && *t >= suspectCelsius {
			r.note("GPU %s is hot: from %d °C on the gateway prefers other nodes", g.GetName(), suspectCelsius)
		}
	}
}

func describeGPU(g *ktmsv1.NodeGPU) string {
	text := g.GetName()
	if g.TemperatureCelsius != nil {
		text += fmt.Sprintf(", %.0f °C", *g.TemperatureCelsius)
	}
	if g.UtilizationPercent != nil {
		text += fmt.Sprintf(", %.0f%% busy", *g.UtilizationPercent)
	}
	if g.MemoryFreeBytes != nil && g.MemoryTotalBytes != nil {
		text += fmt.Sprintf(", %.1f of %.1f GiB free", gib(*g.MemoryFreeBytes), gib(*g.MemoryTotalBytes))
	}
	return text
}

func gib(bytes int64) float64 { return float64(bytes) / (1 << 30) }
