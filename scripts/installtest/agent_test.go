package installtest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
)

// gateway takes a node in, and lets it go at once.
type gateway struct {
	ktmsv1connect.UnimplementedNodeRegistryServiceHandler

	mu         sync.Mutex
	key        string
	registered *ktmsv1.RegisterNodeRequest
}

func (*gateway) VetModels(_ context.Context, r *ktmsv1.VetModelsRequest) (*ktmsv1.VetModelsResponse, error) {
	resp := &ktmsv1.VetModelsResponse{}
	for _, m := range r.Models {
		resp.Verdicts = append(resp.Verdicts, &ktmsv1.ModelVerdict{Model: m, Allowed: true, InCatalogue: true})
	}
	return resp, nil
}

func (g *gateway) RegisterNode(ctx context.Context, r *ktmsv1.RegisterNodeRequest) (*ktmsv1.RegisterNodeResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	info, _ := connect.CallInfoForServerContext(ctx)
	g.key, g.registered = info.RequestHeader().Get("Authorization"), r
	return &ktmsv1.RegisterNodeResponse{HeartbeatIntervalSeconds: 1, SupportsLevels: true}, nil
}

func (*gateway) Heartbeat(_ context.Context, r *ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) {
	return &ktmsv1.HeartbeatResponse{State: ktmsv1.NodeState_NODE_STATE_HEALTHY, RegisterAgain: r.Draining}, nil
}

func (g *gateway) open(t *testing.T) (url string) {
	t.Helper()
	server, mux := connect.NewServer(), http.NewServeMux()
	ktmsv1connect.RegisterNodeRegistryServiceHandler(server, g)
	connecthttp.Mount(mux, server)
	s := httptest.NewUnstartedServer(mux)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// TestRealAgent holds the installer to the agent that is released: its flags, its log, its doctor, its schedules.
func TestRealAgent(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "ktms-node")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.version=v1.0.0", "-o", program, "../../cmd/ktms-node")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	agent, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	m, s, g := newMachine(t, host()), newSite(t), &gateway{}
	m.env = append(m.env, s.mirrors()...)
	script := s.publish(t, newRelease(t, "v1.0.0", string(agent)))
	m.write("00:00-24:00 30\n", 0o600, "rules")
	args := []string{"--proxy", g.open(t), "--node-id", "anna-mac", "--model", model, "--endpoint", "http://" + m.ollama, "--schedule", m.file("rules"), "--max-concurrency", "2"}

	out, err := m.run(script, args...)
	if err != nil || !strings.HasSuffix(out, "Schedule: now 30%, no switch\nNode anna-mac is running and registered\n") {
		t.Fatalf("%v:\n%s\n%s", err, out, m.tryRead("home", ".ktms-node/logs/node.log"))
	}
	g.mu.Lock()
	r := g.registered
	if g.key != "Bearer "+nodeKey || r.NodeId != "anna-mac" || r.Endpoint != "http://"+m.ollama+"/v1" || r.MaxConcurrent != 2 || r.AgentVersion != "v1.0.0" ||
		len(r.Models) != 1 || r.Models[0].Id != model {
		t.Errorf("key %q, registered %v", g.key, r)
	}
	g.mu.Unlock()

	pids := m.pids()
	if out, err := m.run(script, args...); err != nil || m.restarted(pids) != "" {
		t.Errorf("again: %v, restarted %q:\n%s", err, m.restarted(pids), out)
	}
	if out, err := m.run(script, append(args, "--doctor")...); err != nil || !strings.Contains(out, "accepts the node key for node anna-mac") || !strings.Contains(out, "model "+model+" is loaded") {
		t.Errorf("the doctor: %v\n%s", err, out)
	}
	m.write("00:00-25:00 30\n", 0o600, "rules")
	if out, err := m.run(script, args...); err == nil || !strings.Contains(out, "the schedule is not valid") || !strings.Contains(out, "line 1") {
		t.Errorf("a wrong schedule: %v\n%s", err, out)
	}
	// A restart waits until the agent has left the pool.
	if out, err := m.run(script, append(args[:len(args)-4], "--max-concurrency", "3")...); err != nil || m.restarted(pids) != "ollama node" {
		t.Errorf("an update: %v, restarted %q:\n%s", err, m.restarted(pids), out)
	}
	if log := m.tryRead("home", ".ktms-node/logs/node.log"); !strings.Contains(log, `"msg":"stopped"`) || strings.Contains(log, nodeKey) {
		t.Errorf("the log:\n%s", log)
	}
	if out, err := m.run(script, "--uninstall"); err != nil || m.pid(m.unit("node")) != 0 {
		t.Errorf("uninstalling: %v\n%s", err, out)
	}
	if runtime.GOOS == "linux" && strings.Contains(m.tree(), "ktms") {
		t.Errorf("left:\n%s", m.tree())
	}
}
