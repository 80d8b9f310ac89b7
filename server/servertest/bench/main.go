// Command bench measures what Keystone adds to a call, side by side with the same call made directly, in one run.
//
// It builds ktms-server, starts it and a scripted vendor as processes of their own on loopback, and alternates between
// both ways, so that whatever else the machine does weighs on both alike. It ends by itself and reads CPU time and
// memory from /proc, so it runs on Linux alone.
//
//	go run ./server/servertest/bench            # about half a minute
//	go run ./server/servertest/bench -calls 20000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	calls := flag.Int("calls", 4000, "calls of each kind, each way")
	parallel := flag.Int("parallel", 16, "calls at once where throughput and CPU are measured")
	vendor := flag.Bool("vendor", false, "serve as the scripted vendor; for the program's own use")
	flag.Parse()
	if *vendor {
		serveVendor()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := run(ctx, *calls, *parallel); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, calls, parallel int) error {
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

	self, err := os.Executable()
	if err != nil {
		return err
	}
	vendorAddr, err := freeAddr()
	if err != nil {
		return err
	}
	vendor := exec.CommandContext(ctx, self, "-vendor")
	vendor.Env = append(os.Environ(), "BENCH_VENDOR_ADDR="+vendorAddr)
	stopVendor, err := start(vendor)
	if err != nil {
		return err
	}
	defer stopVendor()
	direct := target{name: "direct", url: "http://" + vendorAddr + "/v1/chat/completions", key: "sk-bench", model: "gpt-6-luna"}
	if err := direct.wait(ctx); err != nil {
		return fmt.Errorf("the scripted vendor: %w", err)
	}

	httpAddr, err := freeAddr()
	if err != nil {
		return err
	}
	gateway := exec.CommandContext(ctx, binary)
	gateway.Dir = dir
	gateway.Env = append(cleanEnv(),
		"DATABASE_URL=sqlite:"+filepath.Join(dir, "ktms.db"), "KTMS_ENCRYPTION_KEYS=1:"+strings.Repeat("A", 43)+"=",
		"HTTP_ADDR="+httpAddr, "GRPC_ADDR=127.0.0.1:0", "METRICS_ADDR=", "AUTO_SEED=true", "SEED_CLIENT_KEY=ktms_bench",
		"OPENAI_API_KEY=sk-bench", "OPENAI_BASE_URL=http://"+vendorAddr+"/v1", "LOG_LEVEL=info")
	through := target{name: "keystone", url: "http://" + httpAddr + "/v1/chat/completions", key: "ktms_bench", model: "gpt-6-luna"}
	began := time.Now()
	stopGateway, err := start(gateway)
	if err != nil {
		return err
	}
	defer stopGateway()
	if err := through.wait(ctx); err != nil {
		return fmt.Errorf("ktms-server: %w", err)
	}
	ready := time.Since(began)

	fmt.Printf("binary                     %6.1f MB (static, stripped)\n", float64(info.Size())/1e6)
	fmt.Printf("start to first answer      %6.0f ms (new SQLite file, seeded)\n", float64(ready.Milliseconds()))
	fmt.Printf("memory after first answer  %6.1f MiB of its own, %.1f MiB resident with the binary's pages\n\n",
		anonymous(gateway.Process.Pid), resident(gateway.Process.Pid))

	fmt.Printf("one call at a time, %d of each        p50 ms    p90 ms    p99 ms\n", calls)
	for _, kind := range []struct {
		name   string
		stream bool
	}{{"unary, whole answer", false}, {"stream, first token", true}} {
		sides, err := alternate(ctx, calls, kind.stream, direct, through)
		if err != nil {
			return err
		}
		for _, s := range sides {
			fmt.Printf("  %-20s %-10s %10.3f %9.3f %9.3f\n", kind.name, s.name, s.at(0.5), s.at(0.9), s.at(0.99))
		}
		fmt.Printf("  %-20s %-10s %10.3f %9.3f %9.3f\n", kind.name, "added", sides[1].at(0.5)-sides[0].at(0.5),
			sides[1].at(0.9)-sides[0].at(0.9), sides[1].at(0.99)-sides[0].at(0.99))
	}

	fmt.Printf("\n%d calls at once, %d of each        calls/s   CPU s per 1,000\n", parallel, calls)
	for _, stream := range []bool{false, true} {
		before := cpuSeconds(gateway.Process.Pid)
		took, err := load(ctx, through, calls, parallel, stream)
		if err != nil {
			return err
		}
		used := cpuSeconds(gateway.Process.Pid) - before
		name := map[bool]string{false: "unary", true: "stream of 20 tokens"}[stream]
		fmt.Printf("  %-30s %13.0f %16.3f\n", name, float64(calls)/took.Seconds(), used/float64(calls)*1000)
	}
	fmt.Printf("\nmemory after the load      %6.1f MiB of its own, %.1f MiB resident, peak %.1f MiB\n",
		anonymous(gateway.Process.Pid), resident(gateway.Process.Pid), peak(gateway.Process.Pid))
	return nil
}

// start runs a process and returns what ends it.
func start(cmd *exec.Cmd) (stop func(), err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // the context's end kills what does not stop
	}, nil
}

// cleanEnv is the environment without what would configure the server.
func cleanEnv() []string { return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")} }

func freeAddr() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

var errNoAnswer = errors.New("no answer within 10 s")

// wait calls until the target answers.
func (t target) wait(ctx context.Context) error {
	client := newClient()
	defer client.CloseIdleConnections()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, err := t.call(ctx, client, false); err == nil {
			return nil
		}
	}
	return errNoAnswer
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
}
