package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
)

func empty(string) string { return "" }

// withKey is an environment with a node key.
func withKey(name string) string {
	return map[string]string{"NODE_KEY": " ktms_node_test\n", "NODE_AUTH_TOKEN": "engine_token"}[name]
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	var c config
	if err := c.parse(c.flags(), nil, empty, io.Discard); err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	want := config{
		proxyAddr: "127.0.0.1:9090", nodeID: host, nodeName: host, engine: "ollama", engineURL: "http://127.0.0.1:11434",
		expose: "none", cloudflared: "cloudflared", baseWeight: 100, maxConcurrent: 1, warmup: 5 * time.Minute,
		parsedEndpoint: "http://127.0.0.1:11434/v1", level: slog.LevelInfo,
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

// TestFlags takes every flag of the manual, in both spellings of the dash.
func TestFlags(t *testing.T) {
	t.Parallel()
	var c config
	args := strings.Fields(`--proxy-addr=ktms.internal:443 --tls --node-id w1 --node-name W --engine vllm --engine-url http://127.0.0.1:8000
		--endpoint http://10.10.0.15:8000/v1/ --base-weight 200 --max-concurrent 8 --judge-model j1,j2 --judge-model j3 -only-model m1 --only-model m1,m2
		--node-key-file /k --expose none --cloudflared-path /c --schedule-file /s --warmup 90s`)
	if err := c.parse(c.flags(), args, withKey, io.Discard); err != nil {
		t.Fatal(err)
	}
	want := config{
		proxyAddr: "ktms.internal:443", tls: true, nodeID: "w1", nodeName: "W", engine: "vllm", engineURL: "http://127.0.0.1:8000",
		endpoint: "http://10.10.0.15:8000/v1/", parsedEndpoint: "http://10.10.0.15:8000/v1", baseWeight: 200, maxConcurrent: 8,
		judges: list{"j1", "j2", "j3"}, only: list{"m1", "m2"}, nodeKeyFile: "/k", expose: "none", cloudflared: "/c", scheduleFile: "/s",
		warmup: 90 * time.Second, key: "ktms_node_test", engineToken: "engine_token",
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"--engine mlx", "choose one of ollama"},
		{"--engine-url 127.0.0.1:11434", "is no URL"},
		{"--endpoint 10.0.0.1", "--endpoint: \"10.0.0.1\" is no URL"},
		{"--endpoint http://10.0.0.1/v1?x=1", "must end with the path"},
		{"--expose ngrok", "use none or cloudflared"},
		{"--expose cloudflared --endpoint http://x", "exclude each other"},
		{"--base-weight 0", "--base-weight must be"},
		{"--max-concurrent 10001", "--max-concurrent must be from 1 to 10000"},
		{"--base-weight 10001", "--base-weight must be from 1 to 10000"},
		{"--max-concurrent 0", "--max-concurrent must be"},
		{"--warmup -1s", "--warmup must be"},
		{"--proxy-addr ftp://x", "--proxy-addr"},
		{"--max-concurrent 0 --base-weight 0", "--base-weight must be from 1 to 10000\n--max-concurrent"},
		{"--nonsense", "not defined: -nonsense: ktms-node --help lists the flags"},
		{"doctor --nonsense", "ktms-node --help lists"},
		{"--max-concurrent many", "ktms-node --help lists"},
		{"--tls extra", `"extra" is neither`},
		{"serve", `no command "serve"`},
		{"schedule", "--file FILE"},
		{"schedule --file /nonexistent", "no such file"},
		{"--proxy-addr 127.0.0.1:1", "there is no node key"},
	} {
		var out bytes.Buffer
		err := run(t.Context(), nil, strings.Fields(c.args), empty, &out, &out)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
		if out.Len() > 0 {
			t.Errorf("%s printed %q beside its error", c.args, out.String())
		}
	}
}

// TestKeyOnTheCommandLine is refused in a sentence that does not repeat it.
func TestKeyOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--node-key", "ktms_node_secret"}, {"--node-key=ktms_node_secret"}, {"-key=x_secret"}, {"ktms_node_secret"},
		{"--node-key-file", "ktms_node_secret"}, {"--node-id=llm_node_secret"}, {"doctor", "--node-key", "secret"}, {"--tls", "llm_node_secret"},
	} {
		err := run(t.Context(), nil, args, withKey, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "NODE_KEY") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", args, err)
		}
	}
	var c config
	if err := c.parse(c.flags(), []string{"--node-key-file", "/etc/ktms_node_key"}, empty, io.Discard); err != nil {
		t.Errorf("a file that only looks like a key: %v", err)
	}
}

func TestNodeKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	c := config{nodeKeyFile: path, key: "ktms_node_environment"}
	key := c.keySource()
	if _, err := key.get(); err == nil {
		t.Error("a missing file gives a key")
	}
	for _, f := range []struct {
		text, want string
		mode       os.FileMode
	}{{"ktms_node_1\n", "ktms_node_1", 0o600}, {"ktms_node_2", "ktms_node_2", 0o644}, {"", "", 0o600}, {"two words", "", 0o600}, {"a\nb", "", 0o600},
		{"\ufeffktms_node_3\r\n", "ktms_node_3", 0o600}, {"ktms_nöde", "", 0o600}, {"ktms\x7fnode", "", 0o600}, {"ktms_node_4", "ktms_node_4", 0o600}} {
		if err := os.WriteFile(path, []byte(f.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, f.mode); err != nil {
			t.Fatal(err)
		}
		got, err := key.get()
		if got != f.want || (err == nil) != (f.want != "") {
			t.Errorf("%q: %q, %v", f.text, got, err)
		}
		if c.keyFileIsOpen() != (f.mode != 0o600) {
			t.Errorf("mode %o counts as open: %v", f.mode, c.keyFileIsOpen())
		}
	}
	for _, c := range []struct{ environment, want string }{{"k", "k"}, {"", ""}, {"a b", ""}, {"a\nb", ""}} {
		if got, err := (&keySource{environment: c.environment}).get(); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q in the environment: %q, %v", c.environment, got, err)
		}
	}
}

// TestEngineToken goes without the line's end of the file that it came from, and alone.
func TestEngineToken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ token, want string }{{"t\n", "t"}, {"a b", ""}, {"a\nb", ""}, {"ü", ""}} {
		var config config
		err := config.parse(config.flags(), nil, func(name string) string { return map[string]string{"NODE_AUTH_TOKEN": c.token}[name] }, io.Discard)
		if (err == nil) != (c.want != "") || (err == nil && config.engineToken != c.want) || (err != nil && !strings.Contains(err.Error(), "NODE_AUTH_TOKEN")) {
			t.Errorf("%q: %q, %v", c.token, config.engineToken, err)
		}
	}
}

// TestKeyFromAPipe reads it once, as a shell's <(command) can be, and waits for nobody.
func TestKeyFromAPipe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
	c := config{nodeKeyFile: path}
	key := c.keySource()
	if got, err := key.get(); err == nil {
		t.Errorf("a pipe without a writer gives %q", got)
	}
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(path, []byte("ktms_node_1\n"), 0) }() // waits for the reader
	eventually(t, "the key never came", func() bool {
		got, err := key.get()
		return got == "ktms_node_1" && err == nil
	})
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if got, err := key.get(); got != "ktms_node_1" || err != nil {
		t.Errorf("the second time: %q, %v", got, err)
	}
	if c.keyFileIsOpen() {
		t.Error("a pipe counts as a file that others can read")
	}
}

// TestSecretsInAddresses are refused, and not repeated.
func TestSecretsInAddresses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--endpoint", "http://user:secret@10.0.0.1/v1"}, {"--engine-url", "http://user:secret@127.0.0.1:11434"}, {"--engine-url", "http://secret@127.0.0.1"},
		{"--proxy-addr", "https://ktms_node_" + strings.Repeat("5ec3e7", 8) + "@host"}, {"--endpoint", "http://10.0.0.1/v1?key=llm_node_" + strings.Repeat("5ec3e7", 8)},
	} {
		err := run(t.Context(), nil, args, withKey, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "every user of this machine") || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "5ec3e7") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestPrinting(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "schedule")
	if err := os.WriteFile(path, []byte("00:00-24:00 30"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--version"}, "ktms-node "}, {[]string{"version"}, "ktms-node "},
		{[]string{"--help"}, "-proxy-addr address"}, {[]string{"help"}, "-schedule-file"},
		{[]string{"--help"}, "NODE_KEY  "}, {[]string{"--help"}, "NODE_AUTH_TOKEN  "}, {[]string{"doctor", "--help"}, "LOG_LEVEL  "}, {[]string{"doctor", "--help"}, "-model model"},
		{[]string{"schedule", "--file", path}, "now 30%, no switch\n"},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), nil, c.args, empty, &out, io.Discard); err != nil || !strings.Contains(out.String(), c.want) {
			t.Errorf("%q: %q, %v", c.args, out.String(), err)
		}
	}
}

// gateway is a registry that forgets a node that leaves, so that nobody waits for the sweep.
type gateway struct {
	ktmsv1connect.UnimplementedNodeRegistryServiceHandler
	mu         sync.Mutex
	key        string
	registered *ktmsv1.RegisterNodeRequest
	beats      int
	draining   bool
	// wants is the one key that it takes; empty takes any.
	wants string
	// left says that the node was unregistered.
	left bool
	// held keeps a node that leaves, for a request that does not end.
	held bool
}

func (g *gateway) hold(held bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = held
}

func (g *gateway) UnregisterNode(context.Context, *ktmsv1.UnregisterNodeRequest) (*ktmsv1.UnregisterNodeResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = true
	return &ktmsv1.UnregisterNodeResponse{}, nil
}

func (g *gateway) hasLeft() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.left
}

func (g *gateway) beatCount() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.beats
}

func (g *gateway) isDraining() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.draining
}

func (g *gateway) VetModels(ctx context.Context, r *ktmsv1.VetModelsRequest) (*ktmsv1.VetModelsResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	info, _ := connect.CallInfoForServerContext(ctx)
	g.key = info.RequestHeader().Get("Authorization")
	if g.wants != "" && g.key != "Bearer "+g.wants {
		return nil, connect.NewError(connect.CodeUnauthenticated, "invalid key")
	}
	resp := &ktmsv1.VetModelsResponse{}
	for _, m := range r.Models {
		resp.Verdicts = append(resp.Verdicts, &ktmsv1.ModelVerdict{Model: m, Allowed: true, InCatalogue: true})
	}
	return resp, nil
}

func (g *gateway) RegisterNode(_ context.Context, r *ktmsv1.RegisterNodeRequest) (*ktmsv1.RegisterNodeResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.registered = r
	return &ktmsv1.RegisterNodeResponse{HeartbeatIntervalSeconds: 1, SupportsLevels: true}, nil
}

func (g *gateway) Heartbeat(_ context.Context, r *ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.beats++
	g.draining = r.Draining
	return &ktmsv1.HeartbeatResponse{State: ktmsv1.NodeState_NODE_STATE_HEALTHY, RegisterAgain: r.Draining && !g.held, ActiveProxyRequests: 1}, nil
}

// serve starts the gateway on one plaintext port, and an Ollama with a loaded model.
func serveWorld(t *testing.T) (g *gateway, proxy, ollama string) {
	t.Helper()
	g = &gateway{}
	server, mux := connect.NewServer(), http.NewServeMux()
	ktmsv1connect.RegisterNodeRegistryServiceHandler(server, g)
	connecthttp.Mount(mux, server)
	s := httptest.NewUnstartedServer(mux)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/tags", "/api/ps":
			io.WriteString(w, `{"models":[{"name":"a:1","digest":"1","size":5,"size_vram":5,"context_length":4096}]}`)
		case "/v1/models":
			io.WriteString(w, `{"data":[{"id":"a:1"}]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(e.Close)
	return g, s.Listener.Addr().String(), e.URL
}

// TestServe runs the program against a registry on a real port, up to the signal.
func TestServe(t *testing.T) {
	t.Parallel()
	g, proxy, ollama := serveWorld(t)
	var log bytes.Buffer
	stop := startServing(t, g, &log, "--proxy-addr", proxy, "--node-id", "n", "--engine-url", ollama)
	stop()
	r := g.registered
	if g.key != "Bearer ktms_node_test" || r.NodeId != "n" || r.Endpoint != ollama+"/v1" || r.AuthToken != "engine_token" || r.AgentVersion != buildVersion() ||
		len(r.Models) != 1 || !r.Models[0].IsWarm || !g.draining {
		t.Errorf("key %q, registered %v, draining %v", g.key, r, g.draining)
	}
	for line := range strings.Lines(log.String()) {
		if !json.Valid([]byte(line)) || strings.Contains(line, "ktms_node_test") || strings.Contains(line, "engine_token") {
			t.Errorf("log line %s", line)
		}
	}
}

// TestServeExposed registers the tunnel's address and a key of its own.
func TestServeExposed(t *testing.T) {
	t.Parallel()
	g, proxy, ollama := serveWorld(t)
	program := filepath.Join(as(t, "cloudflared"), "cloudflared")
	var log bytes.Buffer
	stop := startServing(t, g, &log, "--proxy-addr", proxy, "--engine-url", ollama, "--expose=cloudflared", "--cloudflared-path", program)
	stop()
	r := g.registered
	if r.Endpoint != "https://stand-in.trycloudflare.com/v1" || r.AuthToken == "engine_token" || len(r.AuthToken) < 20 || strings.Contains(log.String(), r.AuthToken) {
		t.Errorf("registered %s; the log:\n%s", r.Endpoint, log.String())
	}
}

// TestKeyIsMended registers as soon as the file holds the right key, without a restart.
func TestKeyIsMended(t *testing.T) {
	t.Parallel()
	g, proxy, ollama := serveWorld(t)
	g.wants = "ktms_node_right"
	path := filepath.Join(t.TempDir(), "key")
	write := func(text string) {
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("ktms_node_wrong\n")
	var log lockedBuffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		args := []string{"--proxy-addr", proxy, "--node-id", "n", "--engine-url", ollama, "--node-key-file", path}
		ended <- run(ctx, nil, args, withKey, io.Discard, &log)
	}()
	eventually(t, "the refusal is not logged", func() bool { return strings.Contains(log.String(), "does not accept the node key (invalid key)") })
	write("ktms_node_right\n")
	eventually(t, "no heartbeats came", func() bool { return g.beatCount() >= 2 })
	stop()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	for _, secret := range []string{"ktms_node_right", "ktms_node_wrong"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log says %s", secret)
		}
	}
}

// startServing runs the program until it sends heartbeats; stop is the signal, and waits for the end.
func startServing(t *testing.T, g *gateway, log io.Writer, args ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, nil, args, withKey, io.Discard, log) }()
	eventually(t, "no heartbeats came", func() bool { return g.beatCount() >= 2 })
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("ended with %v", err)
		}
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	_, proxy, ollama := serveWorld(t)
	args := []string{"doctor", "--proxy-addr", proxy, "--node-id", "n", "--engine-url", ollama, "--model"}
	var out bytes.Buffer
	if err := run(t.Context(), nil, append(args, "a:1"), withKey, &out, io.Discard); err != nil {
		t.Errorf("%v:\n%s", err, out.String())
	}
	out.Reset()
	if err := run(t.Context(), nil, append(args, "b:1"), withKey, &out, io.Discard); err != errProblems || !strings.Contains(out.String(), "PROBLEM  the engine lacks the model b:1") {
		t.Errorf("%v:\n%s", err, out.String())
	}
	out.Reset()
	if err := run(t.Context(), nil, append(args, "a:1"), empty, &out, io.Discard); err != errProblems || !strings.Contains(out.String(), "there is no node key") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}
