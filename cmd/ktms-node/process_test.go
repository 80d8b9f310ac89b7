package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test's own program be the agent or a stand-in for cloudflared, by the name that it is started under.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "ktms-node":
		main()
	case "cloudflared":
		standIn(filepath.Dir(os.Args[0]))
	default:
		os.Exit(m.Run())
	}
}

// standIn names an address and waits for its end. It writes down what it was started with, and that it was told to stop.
func standIn(folder string) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	started := fmt.Sprintf("%d\n%q\n%q\n", os.Getpid(), os.Args, os.Environ())
	if err := os.WriteFile(filepath.Join(folder, "started"), []byte(started), 0o600); err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stderr, "INF |  https://stand-in.trycloudflare.com  |")
	fmt.Fprintln(os.Stderr, "INF Registered tunnel connection connIndex=0 protocol=quic")
	<-stop
	if err := os.WriteFile(filepath.Join(folder, "stopped"), nil, 0o600); err != nil {
		panic(err)
	}
}

// as puts the test's own program into a folder under other names.
func as(t *testing.T, names ...string) (folder string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	for _, name := range names {
		if err := os.Symlink(self, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// process is an agent of its own, with a tunnel.
type process struct {
	cmd    *exec.Cmd
	folder string
	ended  chan error
	log    lockedBuffer
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startProcess starts the agent in a process group of its own, as a shell does, and waits until it sends heartbeats.
func startProcess(t *testing.T, g *gateway, proxy, ollama string) *process {
	t.Helper()
	p := &process{folder: as(t, "ktms-node", "cloudflared"), ended: make(chan error, 1)}
	p.cmd = exec.Command(filepath.Join(p.folder, "ktms-node"), "--proxy-addr", proxy, "--node-id", "n", "--engine-url", ollama,
		"--expose=cloudflared", "--cloudflared-path", filepath.Join(p.folder, "cloudflared"))
	p.cmd.Env = append(os.Environ(), "NODE_KEY=ktms_node_secret", "NODE_AUTH_TOKEN=engine_secret", "LOG_LEVEL=debug")
	p.cmd.Stderr = &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	go func() { p.ended <- p.cmd.Wait() }()
	eventually(t, "no heartbeats came", func() bool { return g.beatCount() >= 2 })
	return p
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// tunnel is the process id of the stand-in, and what it was started with.
func (p *process) tunnel(t *testing.T) (pid int, started string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.folder, "started"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	if pid, err = strconv.Atoi(first); err != nil {
		t.Fatal(err)
	}
	return pid, string(text)
}

func (p *process) stopped() bool {
	_, err := os.Stat(filepath.Join(p.folder, "stopped"))
	return !errors.Is(err, fs.ErrNotExist)
}

// TestSecretsStayInside shows the tunnel's program neither the node key nor the engine's token nor the access key, in its
// environment or its arguments.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	g, proxy, ollama := serveWorld(t)
	p := startProcess(t, g, proxy, ollama)
	g.mu.Lock()
	access := g.registered.AuthToken
	g.mu.Unlock()
	_, started := p.tunnel(t)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-p.ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	if !p.stopped() {
		t.Error("the tunnel was not told to stop")
	}
	for _, secret := range []string{"ktms_node_secret", "engine_secret", access} {
		if strings.Contains(started, secret) {
			t.Errorf("the tunnel was started with %s", secret)
		}
		if strings.Contains(p.log.String(), secret) {
			t.Errorf("the log says %s", secret)
		}
	}
}

// TestTunnelEndsWithTheAgent leaves no tunnel behind, however the agent ends.
func TestTunnelEndsWithTheAgent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere the service manager ends the agent's processes")
	}
	for _, signals := range [][]os.Signal{{os.Kill}, {syscall.SIGTERM, syscall.SIGTERM}} {
		t.Run(fmt.Sprint(signals), func(t *testing.T) {
			t.Parallel()
			g, proxy, ollama := serveWorld(t)
			g.hold(true)
			p := startProcess(t, g, proxy, ollama)
			pid, _ := p.tunnel(t)
			for i, s := range signals {
				if err := p.cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
				if i < len(signals)-1 {
					eventually(t, "the node does not drain", g.isDraining)
				}
			}
			<-p.ended // a killed agent has no status of its own
			if code := p.cmd.ProcessState.ExitCode(); len(signals) > 1 && (code != 1 || !g.hasLeft()) {
				t.Errorf("exit status %d, unregistered: %v", code, g.hasLeft())
			}
			eventually(t, "the tunnel goes on without the agent", p.stopped)
			eventually(t, "the tunnel's process stays", func() bool { return syscall.Kill(pid, 0) != nil })
		})
	}
}

// TestInterruptOfTheTerminal reaches the agent alone: the requests that are left need the tunnel.
func TestInterruptOfTheTerminal(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere the service manager ends the agent's processes by their group")
	}
	g, proxy, ollama := serveWorld(t)
	g.hold(true)
	p := startProcess(t, g, proxy, ollama)
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node does not drain", g.isDraining)
	beats := g.beatCount()
	eventually(t, "the drain stops", func() bool { return g.beatCount() > beats+1 })
	if p.stopped() {
		t.Error("the tunnel ended before the drain")
	}
	g.hold(false)
	if err := <-p.ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}
