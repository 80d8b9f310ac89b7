// Package probe reads what the machine's GPUs report, by the tools that their makers ship. What a tool does not say, or
// says in a garbled way, is unknown and never zero.
package probe

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

const (
	// toolTimeout bounds one tool. nvidia-smi takes up to seconds where no program holds the driver.
	toolTimeout = 5 * time.Second
	// killDelay is how long a tool that was told to end may hold its output open.
	killDelay = time.Second
	// maxOutput bounds what a tool may print.
	maxOutput = 1 << 20
	// maxAge is the age at which a reading says nothing about now. It is as long as a node may be silent.
	maxAge = 15 * time.Second
	// freshWait is how long a reading is waited for where the last one says nothing: a heartbeat can bear that.
	freshWait = 2 * time.Second
)

// errTooLong says that a tool printed more than a reading.
var errTooLong = errors.New("the tool printed too much")

// RunFunc runs a tool and returns what it printed.
type RunFunc func(ctx context.Context, name string, args ...string) ([]byte, error)

// Prober reads the GPUs. The zero value reads those of this machine.
type Prober struct {
	// Run runs a tool; nil runs the real one.
	Run RunFunc
	// OS is the operating system as runtime.GOOS names it; empty is this one.
	OS string
}

// GPUs reads all GPUs once. It returns none where there is no tool that knows one.
func (p Prober) GPUs(ctx context.Context) []*ktmsv1.NodeGPU {
	run := p.Run
	if run == nil {
		run = RunTool
	}
	system := p.OS
	if system == "" {
		system = runtime.GOOS
	}
	if system == "darwin" {
		return apple(ctx, run)
	}
	return append(nvidia(ctx, run), amd(ctx, run)...)
}

// RunTool runs a tool within its time, and kills it at the end of it. It returns what the tool printed, bounded.
func RunTool(ctx context.Context, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // tools are named by the code or the operator
	cmd.WaitDelay = killDelay
	out := &boundedBuffer{}
	cmd.Stdout = out
	err := cmd.Run()
	return out.buffer.Bytes(), err
}

// boundedBuffer refuses more than maxOutput bytes. It does not embed the buffer, whose ReadFrom has no bound.
type boundedBuffer struct{ buffer bytes.Buffer }

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.buffer.Len()+len(p) > maxOutput {
		return 0, errTooLong
	}
	return b.buffer.Write(p)
}

// Sampler keeps the latest reading, so that a tool that hangs holds nobody up for long. It is safe for concurrent use.
type Sampler struct {
	read func(context.Context) []*ktmsv1.NodeGPU

	mu sync.Mutex
	// done is closed at the end of the reading that runs; nil while none does.
	done chan struct{}
	gpus []*ktmsv1.NodeGPU
	at   time.Time
}

// NewSampler returns a Sampler that reads with read, usually Prober.GPUs.
func NewSampler(read func(context.Context) []*ktmsv1.NodeGPU) *Sampler { return &Sampler{read: read} }

// Latest returns the latest reading, and starts the next one. Where the latest is too old it waits for the next, for a
// moment. At most one reading runs: a tool that cannot even be killed costs one goroutine and not one per heartbeat.
func (s *Sampler) Latest(ctx context.Context) []*ktmsv1.NodeGPU {
	done := s.start(ctx)
	if gpus, fresh := s.latest(); fresh || done == nil {
		return gpus
	}
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(freshWait):
	}
	gpus, _ := s.latest()
	return gpus
}

// latest returns the latest reading, or nothing if it is too old.
func (s *Sampler) latest() (gpus []*ktmsv1.NodeGPU, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || time.Since(s.at) > maxAge {
		return nil, false
	}
	return s.gpus, true
}

// start starts a reading, unless one runs that was started before.
func (s *Sampler) start(ctx context.Context) (done <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done != nil {
		return nil
	}
	s.done = make(chan struct{})
	go s.sample(ctx, s.done)
	return s.done
}

func (s *Sampler) sample(ctx context.Context, done chan struct{}) {
	defer close(done)
	gpus := s.read(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gpus, s.at, s.done = gpus, time.Now(), nil
}
