package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Names of what AUTO_SEED puts into a new database.
const (
	clientName = "bench"
	clientKey  = "ktms_bench"
	adminKey   = "bench-admin"
	modelID    = "gpt-6-luna"
)

// startVendor starts the scripted vendor.
func startVendor(ctx context.Context) (direct target, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return target{}, nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return target{}, nil, err
	}
	vendor := exec.CommandContext(ctx, self, "-vendor")
	vendor.Env = append(os.Environ(), "BENCH_VENDOR_ADDR="+addr)
	if stop, err = start(vendor); err != nil {
		return target{}, nil, err
	}
	direct = target{name: "direct", url: "http://" + addr + "/v1/chat/completions", key: "sk-bench", model: modelID}
	return direct, stop, direct.wait(ctx)
}

// gateway is a ktms-server.
type gateway struct {
	name string
	// limited: it has limits, which are counted in memory unless there is a redis.
	limited bool
	// pooled: it calls the vendor as a pool of nodes, which is in memory unless there is a redis.
	pooled bool
	redis  string

	target
	rpc   string
	pid   int
	ready time.Duration
}

// start starts it on a database of its own, and waits for its first answer.
func (g *gateway) start(ctx context.Context, binary, dir, vendor string) (stop func(), err error) {
	httpAddr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	rpcAddr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, binary)
	cmd.Dir = dir
	cmd.Env = append(cleanEnv(),
		"DATABASE_URL=sqlite:"+filepath.Join(dir, strings.ReplaceAll(g.name, " ", "-")+".db"), "KTMS_ENCRYPTION_KEYS=1:"+strings.Repeat("A", 43)+"=",
		"HTTP_ADDR="+httpAddr, "GRPC_ADDR="+rpcAddr, "METRICS_ADDR=", "AUTO_SEED=true", "SEED_CLIENT_KEY="+clientKey, "SEED_CLIENT_NAME="+clientName,
		"OPENAI_API_KEY=sk-bench", "OPENAI_BASE_URL="+strings.TrimSuffix(vendor, "/chat/completions"), "LOG_LEVEL=info",
		"BOOTSTRAP_ADMIN_KEY="+adminKey, "REDIS_ADDR="+g.redis,
		"NODE_ALLOW_LOCALHOST_ENDPOINTS=true", "NODE_HEARTBEAT_TTL_SECONDS="+poolTTL)
	g.target = target{name: g.name, url: "http://" + httpAddr + "/v1/chat/completions", key: clientKey, model: modelID}
	g.rpc = "http://" + rpcAddr
	began := time.Now()
	if stop, err = start(cmd); err != nil {
		return nil, err
	}
	g.pid = cmd.Process.Pid
	err = g.wait(ctx)
	g.ready = time.Since(began)
	return stop, err
}

// redisServer is a throwaway Redis.
type redisServer struct {
	addr string
	pid  int
}

// startRedis starts one without persistence.
func startRedis(ctx context.Context, dir string) (server redisServer, stop func(), err error) {
	if server.addr, err = freeAddr(); err != nil {
		return server, nil, err
	}
	_, port, err := net.SplitHostPort(server.addr)
	if err != nil {
		return server, nil, err
	}
	cmd := exec.CommandContext(ctx, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir)
	if stop, err = start(cmd); err != nil {
		return server, nil, err
	}
	server.pid = cmd.Process.Pid
	for deadline := time.Now().Add(waitAtMost); ; time.Sleep(time.Millisecond) {
		conn, err := net.Dial("tcp", server.addr)
		if err == nil {
			return server, stop, conn.Close()
		}
		if time.Now().After(deadline) {
			stop()
			return server, nil, err
		}
	}
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

// waitAtMost bounds the start of each process.
const waitAtMost = 10 * time.Second

var errNoAnswer = errors.New("no answer within " + strconv.Itoa(int(waitAtMost.Seconds())) + " s")

// wait calls until the target answers.
func (t target) wait(ctx context.Context) error {
	client := newClient()
	defer client.CloseIdleConnections()
	for deadline := time.Now().Add(waitAtMost); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, err := t.call(ctx, client, false); err == nil {
			return nil
		}
	}
	return errNoAnswer
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
}
