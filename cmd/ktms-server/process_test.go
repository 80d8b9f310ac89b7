package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/server/servertest"
)

// patience is how long what has to happen may take on a machine that is busy with other tests.
const patience = time.Minute

// leaseVariable makes this test binary serve instead of testing, with reservations that live so long.
const leaseVariable = "KTMS_TEST_SERVE_WITH_LEASE"

// TestMain lets the test binary be started as ktms-server, or as an engine of the pool, so that tests have processes of
// their own to kill.
func TestMain(m *testing.M) {
	if address := os.Getenv(engineVariable); address != "" {
		fmt.Fprintln(os.Stderr, "engine:", serveEngine(address))
		os.Exit(1)
	}
	lease := os.Getenv(leaseVariable)
	if lease == "" {
		code := m.Run()
		_ = os.RemoveAll(agentFolder())
		os.Exit(code)
	}
	// The standard input ends with the test, however that went.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	if err := serveAsProcess(lease); err != nil {
		fmt.Fprintln(os.Stderr, "ktms-server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serveAsProcess is what main does without arguments.
func serveAsProcess(lease string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := readConfig(false)
	if err != nil {
		return err
	}
	if cfg.lease, err = time.ParseDuration(lease); err != nil {
		return err
	}
	return serve(ctx, cfg, os.Stderr, nil)
}

// process is a ktms-server in a process of its own, with its doors.
type process struct {
	*servertest.Instance
	log    *output
	cmd    *exec.Cmd
	exited chan error
}

// startProcess starts a server with these settings, and waits until it is ready. It ends with the test.
func startProcess(t testing.TB, lease time.Duration, settings map[string]string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": os.Getenv("HOME"), "TMPDIR": os.Getenv("TMPDIR"), leaseVariable: lease.String(),
		"KTMS_ENCRYPTION_KEYS": testKeyring, "BOOTSTRAP_ADMIN_KEY": servertest.AdminKey,
		"HTTP_ADDR": "127.0.0.1:0", "GRPC_ADDR": "127.0.0.1:0", "METRICS_ADDR": "",
		// A busy machine is no outage.
		"DB_TIMEOUT": patience.String(), "REDIS_TIMEOUT": patience.String(),
	}
	maps.Copy(environment, settings)
	p := &process{log: &output{}, cmd: exec.Command(self), exited: make(chan error, 1)}
	for name, value := range environment {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan *servertest.Instance, 1)
	go func() {
		p.follow(stderr, ready)
		p.exited <- p.cmd.Wait()
		close(p.exited) // for those who wait a second time
	}()
	t.Cleanup(func() {
		stdin.Close()
		<-p.exited
		if p.logs("DATA RACE") {
			t.Errorf("the server has a race:\n%s", p.log)
		}
	})
	select {
	case p.Instance = <-ready:
	case err := <-p.exited:
		t.Fatalf("the server ended with %v:\n%s", err, p.log)
	case <-time.After(patience):
		t.Fatalf("the server is not ready:\n%s", p.log)
	}
	p.Admin = ktmsv1connect.NewAdminServiceClient(p.Client(t, servertest.AdminKey))
	return p
}

// follow keeps the log, and tells where the doors are once they are open.
func (p *process) follow(from io.Reader, ready chan<- *servertest.Instance) {
	lines := bufio.NewReader(from)
	for open := false; !open; {
		line, err := lines.ReadString('\n')
		_, _ = io.WriteString(p.log, line)
		if err != nil {
			return
		}
		var said struct{ Msg, GRPC, HTTP string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "ready" {
			ready <- &servertest.Instance{GRPC: "http://" + said.GRPC, HTTP: "http://" + said.HTTP}
			open = true
		}
	}
	_, _ = io.Copy(p.log, lines)
}

// kill ends the process as a crash does, and waits until it is gone.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.exited
}

// terminate asks the process to end.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// ends waits until the process has ended in good order.
func (p *process) ends(t *testing.T) {
	t.Helper()
	select {
	case err := <-p.exited:
		if err != nil {
			t.Fatalf("the server ended with %v:\n%s", err, p.log)
		}
	case <-time.After(patience):
		t.Fatalf("the server does not end:\n%s", p.log)
	}
}

// logs reports whether the process has said something.
func (p *process) logs(text string) bool { return strings.Contains(p.log.String(), text) }
